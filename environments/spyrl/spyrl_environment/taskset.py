"""The taskset: deals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf
from pydantic import Field, field_validator, model_validator

from spyrl.config import Config
from spyrl.errors import SpyRLError
from spyrl.game import Deal
from spyrl_environment.table import checked_config, open_table


class DealData(vf.TaskData):
    """One deal, and the settings it was made with, so that a record of its game says all."""

    preset: str
    settings: list[str]
    tokenizer: str | None = None
    deal: Deal

    @field_validator("deal", mode="before")
    @classmethod
    def _whole(cls, deal: Any) -> Any:
        """Records leave out what is null, and a deal may have no spy."""
        return {"spy": None, **deal} if isinstance(deal, dict) else deal


class DealTask(vf.Task[DealData]):
    """One game. It is no prompt of its own: the environment asks each seat, and scores them together."""


class SpyrlTasksetConfig(vf.TasksetConfig):
    """Which games are dealt."""

    preset: str = "writing-qwen3-4b"
    """A preset's name or a YAML file, as in ``spyrl train PRESET``."""
    settings: list[str] = Field(default_factory=list)
    """``key=value`` settings laid over it, as on SpyRL's command line."""
    games: int | None = Field(None, ge=1)
    """How many games; by default a whole run's, ``training.iterations`` times ``training.games``."""
    tokenizer: str | None = None
    """The model (folder or Hub id) whose tokenizer says how long documents and prompts are; estimated without."""

    def configuration(self) -> Config:
        """SpyRL's configuration of these settings. Raises `spyrl.errors.UsageError`."""
        return checked_config(self.preset, self.settings)

    @model_validator(mode="after")
    def _check(self) -> SpyrlTasksetConfig:
        try:
            self.configuration()
        except SpyRLError as error:
            raise ValueError(str(error)) from None
        return self


class SpyrlTaskset(vf.Taskset[DealTask, SpyrlTasksetConfig]):
    """The games of a run, in its order; see `spyrl_environment.table.Table.deals`."""

    def __init__(self, config: SpyrlTasksetConfig) -> None:
        super().__init__(config)
        self.table = open_table(config.preset, config.settings, config.tokenizer)

    def load(self) -> Iterator[DealTask]:
        """Deal the games, one by one."""
        training = self.table.config.training
        for deal in self.table.deals(self.config.games or training.iterations * training.games):
            data = DealData(
                name=f"{deal.iteration}/{deal.game}",
                preset=self.config.preset,
                settings=self.config.settings,
                tokenizer=self.config.tokenizer,
                deal=deal,
            )
            yield DealTask(data, self.config.task)
