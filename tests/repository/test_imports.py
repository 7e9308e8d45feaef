"""The direction of imports (each layer knows only the ones below it), and what a quick command may load."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import analyzers
import dsv4bench

PRODUCT = Path(dsv4bench.__file__).parent
ANALYZERS = Path(analyzers.__file__).parent

# Outermost first. What stands directly in dsv4bench/ and is not named here belongs to the launch layer.
LAYERS = (
    ("cli", "__main__"),
    ("launch",),
    ("engine",),
    ("worker",),
    ("model", "cache"),
    ("tracing",),
    ("errors", "faults"),
)
LAUNCH = 1
MAY_USE_ANALYZERS = (0, LAUNCH)

# The rooms of the analyzers, outermost first; a room knows the lower ones, and none beside it.
ROOMS = (
    ("api", "compare", "history"),
    ("gate",),
    ("analysis", "export"),
    ("findings", "serve"),
    ("report",),
    ("charts", "swimlane"),
    ("measurement",),
    ("steps",),
    ("ranks", "clients"),
    ("recording",),
    ("readers",),
    ("table", "text", "statistics"),
    ("rundir", "frames"),
    ("extras", "machine", "json_text"),
    ("errors",),
)
LEVEL_OF_ROOM = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}


def layer_of(module: str) -> int:
    part = module.split(".")[1]
    return next((index for index, names in enumerate(LAYERS) if part in names), LAUNCH)


def room_of(module: str) -> str:
    return module.split(".")[1]


def modules(root: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(root.rglob("*.py")):
        name = ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(path.read_text(), filename=str(path))


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            yield node.module
            # `from package import module` imports the module as well.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_layer_imports_only_itself_and_the_layers_below() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, tree in modules(PRODUCT)
        if module != "dsv4bench"
        for imported in imports(tree)
        if imported.startswith("dsv4bench.") and imported != "dsv4bench.__version__"
        if layer_of(imported) < layer_of(module)
    ]
    assert wrong == []


def test_only_the_command_line_and_the_launcher_use_the_analyzers() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, tree in modules(PRODUCT)
        for imported in imports(tree)
        if imported.split(".")[0] == "analyzers"
        if module == "dsv4bench" or layer_of(module) not in MAY_USE_ANALYZERS
    ]
    assert wrong == []


def test_the_analyzers_know_nothing_of_the_engine_nor_of_torch() -> None:
    forbidden = ("dsv4bench", "profiles", "torch", "transformers", "safetensors")
    wrong = [
        f"{module} imports {imported}"
        for module, tree in modules(ANALYZERS)
        for imported in imports(tree)
        if imported.split(".")[0] in forbidden
    ]
    assert wrong == []


def test_every_module_of_the_analyzers_is_in_a_room() -> None:
    rooms = {room_of(module) for module, _ in modules(ANALYZERS) if module != "analyzers"}
    assert rooms == set(LEVEL_OF_ROOM)


def test_every_room_of_the_analyzers_imports_only_itself_and_the_rooms_below() -> None:
    wrong = [
        f"{module} imports {imported}"
        for module, tree in modules(ANALYZERS)
        if module != "analyzers"
        for imported in imports(tree)
        if imported.startswith("analyzers.") and room_of(imported) != room_of(module)
        if LEVEL_OF_ROOM[room_of(imported)] <= LEVEL_OF_ROOM[room_of(module)]
    ]
    assert wrong == []


PAIRING = ("check_lifecycles", "rank_runs", "match_rounds", "measure_pipeline", "measure_skew")


def test_steps_are_paired_and_rounds_are_matched_in_one_place() -> None:
    callers = {
        (module, node.func.id)
        for module, tree in modules(ANALYZERS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PAIRING
    }
    assert callers == {("analyzers.measurement", function) for function in PAIRING}


@pytest.mark.parametrize("root", [PRODUCT, ANALYZERS], ids=["dsv4bench", "analyzers"])
def test_no_two_modules_import_each_other_while_they_load(root: Path) -> None:
    trees = dict(modules(root))
    edges = {name: loaded_at_once(tree) & trees.keys() - {name} for name, tree in trees.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for imported in sorted(edges[name]):
                visit(imported, (*path, name))
            done.add(name)

    for name in trees:
        visit(name, ())


def loaded_at_once(tree: ast.Module) -> set[str]:
    """Imports outside functions and outside `if TYPE_CHECKING`."""
    found: set[str] = set()
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(imports(node))
        pending.extend(ast.iter_child_nodes(node))
    return found


def loaded_modules(code: str) -> set[str]:
    """Run `code` in a fresh interpreter and return the top-level packages it loaded."""
    report = "\nimport json, sys\nprint(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["analyze", "--help"],
        ["run", "--help"],
        ["serve", "--help"],
        ["swimlane", "--help"],
        ["compare", "--help"],
        ["gate", "check", "--help"],
        ["history", "show", "--help"],
    ],
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import sys\nsys.argv = ['dsv4bench', *{arguments}]\n"
        "from dsv4bench.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 0, stop.code"
    )
    assert loaded_modules(code) & {"torch", "pandas", "numpy", "perfetto", "transformers"} == set()


def test_the_analyzers_load_without_torch_and_without_what_only_an_extra_brings() -> None:
    code = (
        "import importlib, pkgutil, analyzers\n"
        "for module in pkgutil.walk_packages(analyzers.__path__, 'analyzers.'):\n"
        "    importlib.import_module(module.name)"
    )
    assert loaded_modules(code) & {"torch", "pandas", "pyarrow", "duckdb", "dsv4bench"} == set()
