"""SpyRL: self-play reinforcement learning for open-ended work, rewarded by a game of Who is the Spy?"""

__version__ = "0.1.0"
