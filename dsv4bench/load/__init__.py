"""The load on an engine, whatever kind of engine it is: when requests are sent, what they ask, what came back."""
