"""The gate: when the trained stage changes (paper Eq. 11 and 12)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.game import Ema, Gate, GateSettings, Stage, Verdict

AT_ONCE = GateSettings(dwell=1, patience=100, decay=0.0)
"""Only the last iteration counts, and no stage has to last: what is left is the thresholds."""

PERFECT, LOST, MIDDLING = Verdict(1.0, 0.0), Verdict(0.0, 0.0), Verdict(0.7, 0.2)


def stages(batches: Sequence[Sequence[Verdict]], settings: GateSettings, gate: Gate | None = None) -> list[Stage]:
    """The stage after each iteration."""
    gate, found = gate or Gate(), []
    for batch in batches:
        gate, _ = gate.step(batch, settings)
        found.append(gate.stage)
    return found


def test_training_starts_with_detection() -> None:
    assert Gate().stage == "detection"


@pytest.mark.parametrize(
    ("accuracy", "abstained", "switches"),
    [
        (1.0, 0.0, True),
        (0.9, 0.1, True),  # both thresholds count as reached
        (0.9, 0.0, True),
        (0.89, 0.0, False),
        (1.0, 0.1, True),
        (1.0, 0.11, False),  # right, but too often unsure
        (0.5, 0.9, False),
    ],
)
def test_from_detection_to_performing(accuracy: float, abstained: float, switches: bool) -> None:
    gate, reason = Gate().step([Verdict(accuracy, abstained)], AT_ONCE)
    assert (gate.stage, reason) == (("performing", "threshold") if switches else ("detection", ""))


@pytest.mark.parametrize(
    ("accuracy", "abstained", "switches"),
    [
        (0.6, 0.0, True),  # 1 - 0.6 = 0.4
        (0.0, 0.0, True),
        (0.61, 0.0, False),
        (1.0, 0.5, True),  # never wrong, but half of them unsure
        (1.0, 0.49, False),
        (0.3, 0.9, True),
    ],
)
def test_from_performing_to_detection_by_error_or_by_abstentions(
    accuracy: float, abstained: float, switches: bool
) -> None:
    gate, reason = Gate(stage="performing").step([Verdict(accuracy, abstained)], AT_ONCE)
    assert (gate.stage, reason) == (("detection", "threshold") if switches else ("performing", ""))


def test_other_thresholds() -> None:
    settings = GateSettings(accuracy=0.5, abstained=0.5, error=0.75, lost=1.0, dwell=1, decay=0.0)
    assert stages([[Verdict(0.5, 0.5)]], settings) == ["performing"]
    assert stages([[Verdict(0.26, 0.99)]], settings, Gate(stage="performing")) == ["performing"]
    assert stages([[Verdict(0.25, 0.0)]], settings, Gate(stage="performing")) == ["detection"]


def test_a_batch_counts_by_its_means() -> None:
    # Accuracies 1, 0.5, 0 and 0.5 have mean 0.5; abstentions 0, 0.25, 0.75 and 0 have mean 0.25.
    # Eq. 11 with ρ = 0.95 from 0: 0.025 and 0.0125; then a perfect batch: 0.95·0.025 + 0.05 and 0.95·0.0125.
    batch = [Verdict(1.0, 0.0), Verdict(0.5, 0.25), Verdict(0.0, 0.75), Verdict(0.5, 0.0)]
    gate, _ = Gate().step(batch, GateSettings())
    assert gate.accuracy.value == pytest.approx(0.025)
    assert gate.abstained.value == pytest.approx(0.0125)
    assert gate.accuracy.read("corrected") == pytest.approx(0.5)
    gate, _ = gate.step([PERFECT], GateSettings())
    assert gate.accuracy.value == pytest.approx(0.07375)
    assert gate.abstained.value == pytest.approx(0.011875)
    # Corrected: 0.07375 / (1 - 0.95²) = 0.07375 / 0.0975.
    assert gate.accuracy.read("corrected") == pytest.approx(0.07375 / 0.0975)


def test_a_literal_average_opens_the_gate_at_the_45th_iteration_and_a_corrected_one_after_the_dwell() -> None:
    literal = stages([[PERFECT]] * 50, GateSettings(ema="literal", patience=100))
    assert literal[:44] == ["detection"] * 44
    assert literal[44] == "performing"
    corrected = stages([[PERFECT]] * 6, GateSettings(ema="corrected", patience=100))
    assert corrected == ["detection"] * 4 + ["performing"] * 2


def test_with_the_published_patience_a_literal_average_never_decides_the_first_switch() -> None:
    gate = Gate()
    for _ in range(19):
        gate, reason = gate.step([PERFECT], GateSettings(ema="literal"))
        assert reason == ""
    gate, reason = gate.step([PERFECT], GateSettings(ema="literal"))
    assert (gate.stage, reason) == ("performing", "patience")


def test_a_stage_lasts_at_least_the_dwell() -> None:
    settings = GateSettings(dwell=3, patience=50, decay=0.0)
    expected = ["detection"] * 2 + ["performing"] * 3 + ["detection"] * 3 + ["performing"]
    # After two perfect iterations the third switches; from then on everything is lost, and found again.
    assert stages([[PERFECT]] * 3 + [[LOST]] * 3 + [[PERFECT]] * 3, settings) == expected


def test_a_stage_that_was_ready_before_the_dwell_but_no_longer_is_goes_on() -> None:
    settings = GateSettings(dwell=3, patience=50, decay=0.0)
    assert stages([[PERFECT], [PERFECT], [LOST], [PERFECT]], settings) == ["detection"] * 3 + ["performing"]


def test_a_stage_lasts_at_most_the_patience() -> None:
    gate, reasons = Gate(), []
    for _ in range(9):
        gate, reason = gate.step([MIDDLING], GateSettings(dwell=2, patience=4, decay=0.0))
        reasons.append((gate.stage, reason))
    assert reasons == [
        *[("detection", "")] * 3,
        ("performing", "patience"),
        *[("performing", "")] * 3,
        ("detection", "patience"),
        ("detection", ""),
    ]


@pytest.mark.parametrize("verdict", [PERFECT, LOST, MIDDLING, Verdict(0.0, 1.0)])
def test_with_patience_equal_to_dwell_the_cycle_is_fixed(verdict: Verdict) -> None:
    settings = GateSettings(dwell=3, patience=3)
    expected = [*["detection"] * 2, *["performing"] * 3, *["detection"] * 3, "performing"]
    assert stages([[verdict]] * 9, settings) == expected


def test_the_averages_outlive_a_switch_and_the_count_does_not() -> None:
    settings = GateSettings(dwell=2, patience=50)
    gate, _ = Gate().step([PERFECT], settings)
    assert gate.iterations == 1
    gate, reason = gate.step([PERFECT], settings)
    assert (gate.stage, gate.iterations, reason) == ("performing", 0, "threshold")
    assert gate.accuracy == Ema(pytest.approx(0.0975), pytest.approx(0.0975))  # type: ignore[arg-type]
    gate, _ = gate.step([LOST], settings)  # the averages move in this stage, too
    assert gate.accuracy.value == pytest.approx(0.95 * 0.0975)
    assert gate.accuracy.weight == pytest.approx(0.95 * 0.0975 + 0.05)


def test_an_iteration_without_games_moves_no_average_but_counts() -> None:
    before, _ = Gate().step([MIDDLING], GateSettings())
    after, _ = before.step([], GateSettings())
    assert (after.accuracy, after.abstained, after.iterations) == (before.accuracy, before.abstained, 2)
    assert stages([[]] * 20, GateSettings()) == ["detection"] * 19 + ["performing"]


VERDICTS = st.lists(st.builds(Verdict, st.floats(0, 1), st.floats(0, 1)), max_size=3)


@given(st.lists(VERDICTS, max_size=40), st.integers(1, 5), st.integers(0, 5), st.floats(0, 0.99))
def test_every_stage_lasts_between_dwell_and_patience(
    batches: list[list[Verdict]], dwell: int, extra: int, decay: float
) -> None:
    settings = GateSettings(dwell=dwell, patience=dwell + extra, decay=decay)
    gate, lasted = Gate(), 0
    for batch in batches:
        before = gate.stage
        gate, reason = gate.step(batch, settings)
        lasted += 1
        assert (gate.stage != before) == bool(reason)
        if reason:
            assert settings.dwell <= lasted <= settings.patience
            assert reason == "threshold" or lasted == settings.patience
            lasted = 0
        assert gate.iterations == lasted < settings.patience


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dwell", 0),
        ("dwell", 21),
        ("decay", 1.0),
        ("decay", -0.1),
        ("accuracy", 90),
        ("abstained", -0.1),
        ("error", 1.5),
        ("lost", float("nan")),
    ],
)
def test_settings_out_of_range(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{key} must be in"):
        GateSettings(**{key: value})  # type: ignore[arg-type]
