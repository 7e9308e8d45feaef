"""The asynchronous decode engine: requests, scheduler, lanes, slots, tickets."""
