import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from analyzers.gate.comparability import run_config
from dsv4bench.cli.profiles import profiles
from dsv4bench.engine.settings import EngineSettings
from dsv4bench.errors import UsageError
from dsv4bench.load.settings import LoadSection
from dsv4bench.profile import (
    CheckSection,
    ModelSection,
    TraceSection,
    list_profiles,
    load_profile,
    profile_as_dict,
    profile_as_toml,
)
from tests.builders.manifests import manifest

SHIPPED = ["ep4-depth2-soak", "gbs32-mtp1", "longctx", "mtp-accuracy", "serving-20", "smoke"]
MINIMAL = 'name = "mine"\n[load]\nrequests = 2\noutput_tokens = 8\nprompt_tokens = 4\n'


def write(directory: Path, text: str) -> str:
    path = directory / "mine.toml"
    path.write_text(text)
    return str(path)


def test_smoke_is_one_short_request_on_eight_ranks() -> None:
    profile = load_profile("smoke")
    assert profile.name == "smoke"
    assert profile.model == ModelSection(preset="tiny", seed=0, weights="bigram")
    assert profile.engine == EngineSettings(
        backend="torch",
        ranks=8,
        depth=2,
        mtp=1,
        requests_per_rank=1,
        max_model_len=512,
        prefill_tokens=1024,
        exchange="shared-memory",
        dispatch_timeout_s=60.0,
    )
    assert profile.load == LoadSection(
        requests=1,
        prompts=["Huawei is"],
        prompt_tokens=None,
        output_tokens=20,
        ignore_eos=True,
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        seed=0,
        warmup_batches=1,
        warmup_output_tokens=4,
    )
    assert profile.check == CheckSection(mtp_off=False)
    assert profile.trace == TraceSection(sa_profile="verbose", strace=True)


def test_gbs32_mtp1_is_a_global_batch_of_32() -> None:
    profile = load_profile("gbs32-mtp1")
    assert profile.engine.ranks * profile.engine.requests_per_rank == 32
    assert (profile.load.requests, profile.load.prompt_tokens, profile.load.output_tokens) == (32, 64, 256)
    assert profile.engine.mtp == 1


def test_the_soak_has_a_thousand_rounds_of_a_full_batch_however_many_drafts_are_accepted() -> None:
    profile = load_profile("ep4-depth2-soak")
    engine, load = profile.engine, profile.load
    assert (engine.ranks, engine.depth, engine.mtp) == (4, 2, 1)
    assert engine.ranks * engine.requests_per_rank == load.requests
    # Prefill gives the first token, a round one or two: the fewest rounds that the rest can take.
    assert (load.output_tokens - 1) / 2 >= 1000
    assert (load.warmup_batches, (load.warmup_output_tokens - 1) / 2) == (1, 5)


def test_the_accuracy_check_needs_greedy_speculation() -> None:
    assert load_profile("mtp-accuracy", ["engine.mtp=3"]).check.mtp_off
    for override, given in [("engine.mtp=0", r"it is 0\)"), ("load.temperature=0.5", r"it is 0\.5\)")]:
        with pytest.raises(
            UsageError, match=r"check\.mtp_off compares greedy outputs with MTP on and off.*" + given
        ):
            load_profile("mtp-accuracy", [override])


def test_the_long_context_is_prefilled_in_one_step() -> None:
    profile = load_profile("longctx")
    assert profile.load.prompt_tokens == profile.engine.prefill_tokens == 8192


def test_the_shipped_profiles_are_named_after_their_files() -> None:
    assert [profile.name for profile in list_profiles()] == SHIPPED
    assert all(profile.description for profile in list_profiles())


def test_overrides_are_toml_values_applied_in_order() -> None:
    profile = load_profile(
        "smoke",
        [
            "engine.depth=1",
            "engine.dispatch_timeout_s=5",
            "trace.strace = false",
            "trace.sa_profile=off",
            "engine.exchange=torch-distributed",
            'load.prompts=["a", "b"]',
            "engine.ranks=4",
            "engine.ranks=2",
        ],
    )
    assert profile.engine.depth == 1
    assert profile.engine.dispatch_timeout_s == 5.0
    assert profile.trace.strace is False
    assert profile.trace.levels is None
    assert profile.engine.exchange == "torch-distributed"
    assert profile.load.prompts == ["a", "b"]
    assert profile.engine.ranks == 2


def test_overriding_one_kind_of_prompt_unsets_the_other() -> None:
    load = load_profile("smoke", ["load.prompt_tokens=32"]).load
    assert (load.prompts, load.prompt_tokens) == (None, 32)
    load = load_profile("gbs32-mtp1", ['load.prompts=["x"]']).load
    assert (load.prompts, load.prompt_tokens) == (["x"], None)


def test_a_path_is_a_profile_too(tmp_path: Path) -> None:
    profile = load_profile(write(tmp_path, MINIMAL), ["load.requests=3"])
    assert (profile.name, profile.load.requests) == ("mine", 3)
    assert profile.engine == EngineSettings()


def test_trace_levels() -> None:
    assert load_profile("smoke").trace.levels == {"e2e", "kernel", "verbose"}
    assert load_profile("smoke", ["trace.sa_profile=e2e,kernel"]).trace.levels == {"e2e", "kernel"}


def test_the_resolved_profile_is_plain_data() -> None:
    plain = profile_as_dict(load_profile("smoke"))
    assert plain["schema_version"] == 1
    assert plain["engine"]["depth"] == 2
    assert plain["load"]["prompts"] == ["Huawei is"]
    assert plain["load"]["prompt_tokens"] is None


@pytest.mark.parametrize("name", SHIPPED)
def test_the_toml_of_a_resolved_profile_reads_back_as_itself(name: str, tmp_path: Path) -> None:
    profile = load_profile(name, ["engine.depth=1", 'model.preset="tab\\t \\"quote\\" \\u00e9\\u007f"'])
    assert load_profile(write(tmp_path, profile_as_toml(profile))) == profile


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "smok",
            rf"unknown profile 'smok' \(did you mean 'smoke'\?\); known: {', '.join(SHIPPED)}, or the path",
        ),
        ("/nowhere/p.toml", r"cannot read profile /nowhere/p\.toml: No such file"),
    ],
)
def test_an_unknown_profile_names_the_nearest_and_all_known(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_profile(name)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("engine.depth=3", r"smoke: engine\.depth = 3: expected a whole number from 1 to 2"),
        ("engine.depth=two", r"engine\.depth = 'two': expected a whole number from 1 to 2"),
        ("engine.depth=true", r"engine\.depth = True: expected a whole number from 1 to 2"),
        ("engine.mtp=8", r"engine\.mtp = 8: expected a whole number from 0 to 7"),
        ("load.temperature=-1", r"load\.temperature = -1: expected a number of at least 0"),
        ("load.top_p=0", r"load\.top_p = 0: expected a number above 0 and at most 1"),
        ("load.top_p=1.5", r"load\.top_p = 1\.5: expected a number above 0 and at most 1"),
        ("load.top_k=0.5", r"load\.top_k = 0\.5: expected a whole number of at least 0"),
        ("check.mtp=true", r"unknown key 'mtp' in \[check\] \(did you mean 'mtp_off'\?\)"),
        ("engine.ranks=0", r"engine\.ranks = 0: expected a whole number from 1 to 64"),
        ("engine.dispatch_timeout_s=0", r"dispatch_timeout_s = 0: expected a number above 0"),
        ("engine.exchange=mpi", r'"mpi"|\'mpi\': expected one of "shared-memory", "torch-distributed"'),
        ("trace.strace=1", r"strace = 1: expected true or false"),
        ("load.requests=0", r"load\.requests = 0: expected a whole number of at least 1"),
        ("load.prompts=[]", r"load\.prompts = \[\]: expected a non-empty list of non-empty strings"),
        ("load.prompt_tokens=-1", r"load\.prompt_tokens = -1: expected a whole number of at least 1"),
        ('model.preset=""', r"model\.preset = '': expected a non-empty string"),
        ("model.seed=-1", r"model\.seed = -1: expected a whole number of at least 0"),
        ("engin.depth=1", r"--set engin\.depth=1: unknown section 'engin' \(did you mean 'engine'\?\)"),
        ("engine.dept=1", r"unknown key 'dept' in \[engine\] \(did you mean 'depth'\?\); known: backend, "),
        ("depth=1", r"--set 'depth=1': write section\.key=value"),
        ("engine.depth", r"--set 'engine\.depth': write section\.key=value"),
        ("trace.sa_profile=loud", r"trace\.sa_profile .*: unknown trace level 'loud'"),
        (
            "load.output_tokens=511",
            r"a prompt of 1 tokens, load\.output_tokens = 511 and engine\.mtp = 1 need 513 positions, "
            r"but engine\.max_model_len = 512",
        ),
        ("load.warmup_output_tokens=600", r"load\.warmup_output_tokens = 600 .* need 602 positions"),
    ],
)
def test_a_bad_override_names_key_value_and_what_is_allowed(override: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_profile("smoke", [override])


def test_the_longest_request_that_fits_is_accepted() -> None:
    # One prompt token at least, 510 output tokens and one speculative position: 512.
    assert load_profile("smoke", ["load.output_tokens=510"]).load.output_tokens == 510


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", r"mine\.toml is not valid TOML: "),
        ("[load]\nrequests = 1\n", r"load\.output_tokens is missing: expected a whole number of at least 1"),
        ('name = "x"\n', r"load\.requests is missing"),
        (MINIMAL.replace('name = "mine"', ""), r"name = None: expected a non-empty string"),
        (MINIMAL + 'prompts = ["a"]\n', r"load\.prompts and load\.prompt_tokens are set"),
        (MINIMAL.replace("prompt_tokens = 4", ""), r"load\.timetable; none is set"),
        ("engine = 3\n" + MINIMAL, r"engine = 3: expected a table \[engine\]"),
        ("[engines]\ndepth = 1\n", r"unknown key 'engines' \(did you mean 'engine'\?\); known: name, "),
        ("schema_version = 2\n" + MINIMAL, r"schema_version = 2; this version reads 1"),
        (MINIMAL + "[engine]\nranks = 1.5\n", r"engine\.ranks = 1\.5: expected a whole number from 1 to 64"),
    ],
)
def test_a_bad_file_is_a_usage_error(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        load_profile(write(tmp_path, text))


def test_an_override_of_a_broken_section_reports_the_section(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"engine = 3: expected a table"):
        load_profile(write(tmp_path, "engine = 3\n" + MINIMAL), ["engine.depth=1"])


def test_a_value_cannot_smuggle_in_a_second_key() -> None:
    with pytest.raises(UsageError, match=r"engine\.depth = '1\\nx=2': expected a whole number"):
        load_profile("smoke", ["engine.depth=1\nx=2"])


def test_a_profile_cannot_be_changed() -> None:
    profile: Any = load_profile("smoke")
    with pytest.raises(AttributeError):
        profile.engine.depth = 1


def test_the_command_lists_every_profile(capsys: pytest.CaptureFixture[str]) -> None:
    profiles()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["profile", "ranks", "requests", "tokens", "mtp", "description"]
    rows = [line.split()[:5] for line in lines[1:] if line.strip() and not line.startswith("   ")]
    assert rows == [
        ["ep4-depth2-soak", "4", "8", "2048", "1"],
        ["gbs32-mtp1", "8", "32", "256", "1"],
        ["longctx", "2", "2", "32", "1"],
        ["mtp-accuracy", "8", "16", "64", "1"],
        ["serving-20", "8", "1", "20", "1"],
        ["smoke", "8", "1", "20", "1"],
    ]


def test_the_command_shows_one_profile_as_toml(capsys: pytest.CaptureFixture[str]) -> None:
    profiles("smoke", ["engine.depth=1"])
    assert tomllib.loads(capsys.readouterr().out)["engine"]["depth"] == 1
    with pytest.raises(UsageError, match="--set needs the profile it applies to"):
        profiles(None, ["engine.depth=1"])


def test_runs_from_before_the_load_had_shapes_are_compared_with_todays() -> None:
    """A default that older runs do not name is what held for them."""
    load = {
        field.name: field.default
        for field in msgspec.structs.fields(LoadSection)
        if not field.required and field.default is not None
    }
    of_old = {"ignore_eos", "temperature", "top_k", "top_p", "seed", "warmup_batches", "warmup_output_tokens"}
    today = run_config(manifest(profile={"load": load}))
    assert {key for key in today if key.startswith("load.")} == {f"load.{key}" for key in of_old}
    other = run_config(manifest(profile={"load": load | {"arrivals": "gamma"}}))
    assert other["load.arrivals"] == "gamma"
