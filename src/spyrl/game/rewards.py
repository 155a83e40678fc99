"""Both stages' rewards (paper Eq. 5 and 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spyrl.game.ballot import Ballot
from spyrl.game.controls import Control
from spyrl.game.tally import Tally


@dataclass(frozen=True)
class RewardSettings:
    """What a detector and a player earn."""

    right: float = 1.0
    """A ballot that names the spy (paper: 1)."""
    abstained: float = 0.0
    """N/A (paper: 0; Vision-Zero: -0.5)."""
    wrong: float = 0.0
    """Another player, or an answer that cannot be read (paper: 0; Vision-Zero: -1)."""
    beta: float = 0.1
    """Weight of the gap between the spy's votes and the civilians' mean (paper: β = 0.1)."""
    lambda_: float = 0.1
    """Weight of a civilian's votes above the civilians' mean (paper: λ = 0.1); written ``lambda`` in files."""
    control: Control = "none"
    """For experiments: ``random_votes`` rewards both stages by ballots drawn at random instead of those cast,
    ``shuffled`` deals the rewards out anew among all players of a role, and among all detectors."""


def detection_reward(ballot: Ballot, spy: int, settings: RewardSettings) -> float:
    """Reward of one ballot: r_i = 1[v_i = u] with the paper's values (Eq. 8)."""
    if ballot.choice == spy:
        return settings.right
    return settings.abstained if ballot.outcome == "abstained" else settings.wrong


def performing_rewards(tally: Tally, spy: int | None, settings: RewardSettings) -> tuple[float, ...]:
    r"""Zero-sum rewards of players 1..n from the votes m_k they received (paper Eq. 5).

    .. math::
        r_u = -β (m_u - \bar m_c), \qquad
        r_j = \frac{β}{n_c} (m_u - \bar m_c) - λ (m_j - \bar m_c) \quad (j ≠ u)

    with :math:`\bar m_c` the mean votes of the :math:`n_c = n-1` civilians. They sum to zero for every tally.

    Without a spy (``spy=None``, Table 8) the tally elects: the player with the most votes stands where the spy
    would, players that tie take that place in turn and everybody gets the mean, and without any vote all get 0.
    """
    if spy is not None:
        return _against(spy, tally.votes, settings)
    elected = [_against(leader, tally.votes, settings) for leader in tally.leaders]
    if not elected:
        return (0.0,) * len(tally.votes)
    return tuple(sum(column) / len(elected) for column in zip(*elected, strict=True))


def _against(spy: int, votes: Sequence[int], settings: RewardSettings) -> tuple[float, ...]:
    civilians = len(votes) - 1
    mean = (sum(votes) - votes[spy - 1]) / civilians
    gap = settings.beta * (votes[spy - 1] - mean)
    return tuple(
        -gap if number == spy else gap / civilians - settings.lambda_ * (received - mean)
        for number, received in enumerate(votes, 1)
    )
