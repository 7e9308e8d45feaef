"""What every test may rely on, wherever the tests are started from."""

import signal

# A shell starts what runs in its background with SIGINT ignored. What a test starts, to interrupt it, would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
