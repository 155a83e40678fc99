"""Who is the Spy? as a `verifiers` environment (v1): taskset, environment and the seats' harness, by one id."""

from spyrl_environment.env import SpyrlEnv
from spyrl_environment.harness import SpyrlHarness
from spyrl_environment.taskset import SpyrlTaskset

__all__ = ["SpyrlEnv", "SpyrlHarness", "SpyrlTaskset"]
