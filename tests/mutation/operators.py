"""The mutants of a source file: small edits, each of which a test should notice.

An edit replaces the text between two offsets, so a mutant differs from its source in one place and its diff is short.
Texts for people are left alone: docstrings, log lines, messages of errors, annotations, assertions, `__repr__`.
"""

import ast
import copy
import re
from collections.abc import Iterator
from hashlib import sha256

import attrs

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_PAIRS = (
    ("min", "max"),
    ("any", "all"),
    ("append", "appendleft"),
    ("pop", "popleft"),
    ("startswith", "endswith"),
    ("bisect_left", "bisect_right"),
    ("bisect", "bisect_left"),
    ("add", "discard"),
)
#: Functions and methods that are taken for each other.
NAMES = {a: b for one, other in _PAIRS for a, b in ((one, other), (other, one))} | {"bisect": "bisect_left"}
#: Functions of which the order of the arguments says nothing.
SYMMETRIC = {"min", "max"}
#: What covers all of its argument: the mutant covers the first 64 KiB.
CHECKSUMS = {"crc32", "md5", "sha1", "sha256", "blake2b", "compare_digest", "adler32"}
#: A limit or span of at least this much is a matter of taste by one, but none by all: its mutant is 0.
TUNED = 10
ENCODINGS = {"ascii", "utf-8", "latin-1"}  #: of which Python takes nearly every spelling
LOG_METHODS = {"debug", "info", "warn", "warning", "error", "failure", "critical"}
UNTESTED = {"__repr__", "__str__"}
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,19}")


@attrs.frozen
class Mutant:
    """One edit of one file; `line` and `end_line` hold what it changes in the original."""

    path: str  #: below the root of the project
    function: str  #: its qualified name, or "" for what runs at import
    operator: str
    line: int
    end_line: int
    start: int  #: offset in bytes
    end: int
    text: str
    at_import: bool  #: the change is no part of a function's body
    names: tuple[str, ...] = ()  #: that an assignment at import gives a value

    def source(self, original: bytes) -> bytes:
        """Return the source with this edit."""
        return original[: self.start] + self.text.encode() + original[self.end :]


def identify(mutant: Mutant, original: bytes, ordinal: int = 0) -> str:
    """Name a mutant by what it changes in which function, so that edits elsewhere leave its name alone."""
    first = original.rfind(b"\n", 0, mutant.start) + 1
    last = original.find(b"\n", mutant.end)
    context = original[first:last].strip()
    parts = (mutant.path, mutant.function, mutant.operator, context, mutant.start - first, mutant.text, ordinal)
    return sha256(repr(parts).encode()).hexdigest()[:8]


def mutants(path: str, source: bytes) -> list[Mutant]:
    """Find all mutants of a file, without those that no compiler takes or that compile to the same."""
    finder = _Finder(path, source)
    finder.block(ast.parse(source).body, _Place())
    unique = {(mutant.start, mutant.end, mutant.text): mutant for mutant in reversed(finder.found)}
    return sorted(unique.values(), key=lambda mutant: (mutant.start, mutant.end, mutant.text))


def compiles(mutant: Mutant, source: bytes) -> bool:
    """Say whether a mutant is a program, and another one than its source."""
    try:
        changed = compile(mutant.source(source), mutant.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return _essence(changed) != _essence(compile(source, mutant.path, "exec", dont_inherit=True))


def _essence(code: object) -> object:
    """What code does, without where it stands."""
    if not hasattr(code, "co_code"):
        return (type(code), repr(code))
    return (code.co_code, code.co_names, code.co_varnames, code.co_freevars, tuple(map(_essence, code.co_consts)))


@attrs.frozen
class _Place:
    """Where a node stands."""

    function: str = ""
    body: bool = False  #: in the body of a function
    #: Attributes of self and parameters by their annotation: those of one type may be taken for each other.
    fields: dict[str, str] = attrs.field(factory=dict)
    parameters: dict[str, str] = attrs.field(factory=dict)
    texts: bool = True  #: words are mutated


class _Finder:
    """Walks a module and notes the edits."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.found: list[Mutant] = []
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    # ---- statements

    def block(self, body: list[ast.stmt], place: _Place) -> None:
        """Walk the statements of a module, class, function or branch."""
        for turn, statement in enumerate(body):
            if _is_docstring(statement) or isinstance(statement, ast.Import | ast.ImportFrom | ast.Assert):
                continue
            self.statement(statement, place, is_last=turn == len(body) - 1)

    def statement(self, node: ast.stmt, place: _Place, is_last: bool) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._define(node, place)
        elif isinstance(node, ast.ClassDef):
            name = f"{place.function}.{node.name}" if place.function else node.name
            self.block(node.body, attrs.evolve(place, function=name, fields=_fields(node), body=False))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            self.block(node.orelse, place)
        elif not (isinstance(node, ast.Expr) and _is_log(node.value)):
            self._leave_out(node, place, is_last)
            self._inside(node, place)

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef, place: _Place) -> None:
        if node.name in UNTESTED or _is_stub(node):
            return
        name = f"{place.function}.{node.name}" if place.function else node.name
        outside = attrs.evolve(place, function=name)
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.expression(default, outside)
        known = {arg.arg: ast.unparse(arg.annotation) for arg in _arguments(node) if arg.annotation}
        inside = attrs.evolve(place, function=name, body=True, parameters=known)
        self.block(node.body, inside)

    def _leave_out(self, node: ast.stmt, place: _Place, is_last: bool) -> None:
        """The statement is not there, or ends its function or its loop."""
        match node:
            case ast.Expr(value=ast.Call() | ast.Await() | ast.Yield()):
                self._replace(node, "pass", "statement left out", place)
                if place.body and not is_last:
                    self._replace(node, "return", "early return", place)
            case ast.AugAssign() | ast.Delete() | ast.Raise():
                self._replace(node, "pass", "statement left out", place)
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if place.body:
                self._replace(node, "pass", "assignment left out", place)
            case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
                self._replace(node, "return None", "returns nothing", place)
            case ast.Return(value=None) if not is_last:
                self._replace(node, "pass", "early return left out", place)
            case ast.Break():
                self._replace(node, "continue", "break and continue", place)
            case ast.Continue():
                self._replace(node, "break", "break and continue", place)
        if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
            changed = copy.deepcopy(node)
            changed.op = ARITHMETIC[type(node.op)]()
            self._replace(node, ast.unparse(changed), "arithmetic", place)

    def _inside(self, node: ast.stmt, place: _Place) -> None:
        """The expressions and blocks of a statement."""
        names = _assigned(node) if not place.body else ()
        if "__slots__" in names or "__all__" in names:
            return
        before = len(self.found)
        match node:
            case ast.If() | ast.While():
                self._condition(node.test, place)
            case ast.For():
                self.expression(node.iter, place)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.expression(item.context_expr, place)
            case ast.Raise(exc=exc) if exc is not None:
                self.expression(exc, attrs.evolve(place, texts=False))
            case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.AugAssign(value=value):
                if value is not None and not place.body and (_number(value) or 0) >= TUNED:
                    self._replace(value, "0", "constant", place)
                elif value is not None:
                    self.expression(value, place)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Subscript):
                        self.expression(target.slice, place)
            case ast.Expr(value=value) | ast.Return(value=value):
                if value is not None:
                    self.expression(value, place)
            case ast.Delete(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Subscript):
                        self.expression(target.slice, place)
            case ast.Match():
                self.expression(node.subject, place)
                for case in node.cases:
                    if case.guard is not None:
                        self._condition(case.guard, place)
                    self.block(case.body, place)
            case ast.Try():
                self._tried(node, place)
        if names:
            self.found[before:] = [attrs.evolve(mutant, names=names) for mutant in self.found[before:]]
        if isinstance(node, ast.If | ast.While | ast.For | ast.With | ast.AsyncWith):
            self.block(node.body, place)
            self.block(getattr(node, "orelse", []), place)

    def _tried(self, node: ast.Try, place: _Place) -> None:
        for handler in node.handlers:
            first, last = handler.body[0], handler.body[-1]
            if not (len(handler.body) == 1 and isinstance(first, ast.Pass)):
                self._edit(first, last, "pass", "exception swallowed", place)
            if not isinstance(first, ast.Raise):
                self._edit(first, last, "raise", "exception not handled", place)
            self.block(handler.body, place)
        self.block(node.body, place)
        self.block(node.orelse, place)
        self.block(node.finalbody, place)

    # ---- expressions

    def _condition(self, node: ast.expr, place: _Place) -> None:
        if not isinstance(node, ast.Compare) or len(node.ops) > 1:
            self._replace(node, f"not ({self._text(node)})", "condition negated", place)
        self.expression(node, place)

    def expression(self, node: ast.expr, place: _Place) -> None:
        """Note the edits of an expression and of what it is made of."""
        if isinstance(node, ast.JoinedStr | ast.Lambda) or _is_log(node):
            # Python 3.11 does not know the places of what is in an f-string.
            if isinstance(node, ast.Lambda):
                self.expression(node.body, place)
            return
        self._edits(node, place)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child, place)
            elif isinstance(child, ast.keyword) and child.arg != "repr":
                shown = child.arg not in {"summary", "doc", "help", "metadata", "text", "reason"}
                self.expression(child.value, attrs.evolve(place, texts=place.texts and shown))
            elif isinstance(child, ast.comprehension):
                self.expression(child.iter, place)
                for condition in child.ifs:
                    self._condition(condition, place)

    def _edits(self, node: ast.expr, place: _Place) -> None:
        match node:
            case ast.Compare(ops=[op]):
                for other in COMPARISONS.get(type(op), ()):
                    self._changed(node, "comparison", place, ops=[other()])
            case ast.BoolOp(op=op, values=values):
                self._changed(node, "and and or", place, op=ast.Or() if isinstance(op, ast.And) else ast.And())
                for turn in range(len(values)):
                    rest = values[:turn] + values[turn + 1 :]
                    whole = rest[0] if len(rest) == 1 else ast.BoolOp(op=op, values=rest)
                    self._replace(node, f"({ast.unparse(whole)})", "condition left out", place)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._replace(node, f"({self._text(operand)})", "not left out", place)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                self._replace(node, f"({self._text(operand)})", "minus left out", place)
            case ast.BinOp(op=op, left=left, right=right) if not _is_text(left) and not _is_text(right):
                if type(op) in ARITHMETIC:
                    self._changed(node, "arithmetic", place, op=ARITHMETIC[type(op)]())
                self._replace(node, f"({self._text(left)})", "operand left out", place)
                if isinstance(op, ast.BitOr | ast.BitAnd | ast.Add | ast.Mult):
                    self._replace(node, f"({self._text(right)})", "operand left out", place)
            case ast.IfExp(body=body, orelse=orelse):
                self._changed(node, "branches swapped", place, body=orelse, orelse=body)
            case ast.Constant():
                self._constant(node, place)
            case ast.Set(elts=elts) | ast.List(elts=elts) | ast.Tuple(elts=elts) if len(elts) > 1:
                for turn in range(len(elts)):
                    self._changed(node, "element left out", place, elts=elts[:turn] + elts[turn + 1 :])
            case ast.Dict(keys=keys, values=values) if len(keys) > 1:
                for turn in range(len(keys)):
                    rest_keys, rest = keys[:turn] + keys[turn + 1 :], values[:turn] + values[turn + 1 :]
                    self._changed(node, "element left out", place, keys=rest_keys, values=rest)
            case ast.Call():
                self._call(node, place)
            case ast.Slice():
                self._slice(node, place)
            case ast.Attribute(value=ast.Name(id="self"), attr=attr, ctx=ast.Load()):
                self._mistaken(node, attr, place.fields, "self.", place)
            case ast.Name(id=name, ctx=ast.Load()):
                self._mistaken(node, name, place.parameters, "", place)

    def _call(self, node: ast.Call, place: _Place) -> None:
        args = node.args
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        has_two = len(args) > 1 and not any(isinstance(arg, ast.Starred) for arg in args[:2])
        if has_two and name not in SYMMETRIC:
            self._changed(node, "arguments swapped", place, args=[args[1], args[0], *args[2:]])
        for turn, keyword in enumerate(node.keywords):
            if keyword.arg not in {None, "repr"}:
                self._changed(
                    node, "argument left out", place, keywords=node.keywords[:turn] + node.keywords[turn + 1 :]
                )
        if name in NAMES:
            changed = copy.deepcopy(node.func)
            setattr(changed, "attr" if isinstance(changed, ast.Attribute) else "id", NAMES[name])
            self._replace(node.func, ast.unparse(changed), "function taken for another", place)
        if name in CHECKSUMS and args:
            self._replace(args[0], f"({self._text(args[0])})[:65536]", "only the first 64 KiB", place)

    def _slice(self, node: ast.Slice, place: _Place) -> None:
        for bound in ("lower", "upper"):
            value = getattr(node, bound)
            if value is not None:
                self._changed(node, "bound of a slice", place, **{bound: None})
                self._replace(value, f"({self._text(value)}) + 1", "bound of a slice", place)

    def _constant(self, node: ast.Constant, place: _Place) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, repr(not value), "constant", place)
        elif isinstance(value, int | float):
            if not place.body and abs(value) >= TUNED:
                others: tuple[float, ...] = (0,)
            else:
                others = (value + 1, value - 1) if value else (1,)
            for other in others:
                self._replace(node, repr(other), "constant", place)
        elif place.texts and isinstance(value, str) and _WORD.fullmatch(value) and value not in ENCODINGS:
            self._replace(node, repr(value + "_"), "word", place)
        elif place.texts and isinstance(value, bytes) and value:
            self._replace(node, repr(value + b"_"), "word", place)

    def _mistaken(self, node: ast.expr, name: str, known: dict[str, str], prefix: str, place: _Place) -> None:
        """The next name of the same type, in a circle."""
        if name not in known or not place.body:
            return
        alike = sorted(other for other, kind in known.items() if kind == known[name])
        other = alike[(alike.index(name) + 1) % len(alike)]
        if other != name:
            self._replace(node, prefix + other, "one name for another", place)

    # ---- edits

    def _changed(self, node: ast.expr, operator: str, place: _Place, **fields: object) -> None:
        changed = copy.copy(node)
        for name, value in fields.items():
            setattr(changed, name, value)
        text = ast.unparse(changed)
        if isinstance(node, ast.Compare | ast.BoolOp | ast.BinOp | ast.IfExp):
            text = f"({text})"
        self._replace(node, text, operator, place)

    def _replace(self, node: ast.stmt | ast.expr, text: str, operator: str, place: _Place) -> None:
        self._edit(node, node, text, operator, place)

    def _edit(
        self, first: ast.stmt | ast.expr, last: ast.stmt | ast.expr, text: str, operator: str, place: _Place
    ) -> None:
        start, end = self._offset(first.lineno, first.col_offset), self._offset(last.end_lineno, last.end_col_offset)
        end_line = last.end_lineno or first.lineno
        where = (first.lineno, end_line, start, end)
        self.found.append(Mutant(self.path, place.function, operator, *where, text, not place.body))

    def _offset(self, line: int | None, column: int | None) -> int:
        return self._starts[(line or 1) - 1] + (column or 0)

    def _text(self, node: ast.expr) -> str:
        return self.source[
            self._offset(node.lineno, node.col_offset) : self._offset(node.end_lineno, node.end_col_offset)
        ].decode()


# ---- what a node is


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _number(node: ast.expr) -> float | None:
    """The value of an expression of numbers alone."""
    parts = ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop
    if not all(isinstance(part, parts) for part in ast.walk(node)):
        return None
    value = eval(compile(ast.Expression(node), "", "eval"), {})
    return value if isinstance(value, int | float) else None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_log(node: ast.expr | None) -> bool:
    """A call of Twisted's or logging's logger."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOG_METHODS
        and "log" in ast.unparse(node.func.value).lower()
    )


def _is_stub(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = [statement for statement in node.body if not _is_docstring(statement)]
    return not body


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _assigned(node: ast.stmt) -> tuple[str, ...]:
    """The names that an assignment gives a value."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return tuple(target.id for target in targets if isinstance(target, ast.Name))


def _fields(node: ast.ClassDef) -> dict[str, str]:
    """The annotated attributes of a class, also those that its __init__ takes over from its parameters."""
    known = {
        statement.target.id: ast.unparse(statement.annotation)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    for statement in ast.walk(node):
        match statement:
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), annotation=annotation):
                known.setdefault(name, ast.unparse(annotation))
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Constant(value=value)
            ) if value is not None:
                known.setdefault(name, type(value).__name__)
    return known


def each(path: str, source: bytes) -> Iterator[tuple[str, Mutant]]:
    """Give each mutant of a file with its name."""
    seen: dict[str, int] = {}
    for mutant in mutants(path, source):
        plain = identify(mutant, source)
        seen[plain] = seen.get(plain, 0) + 1
        yield (plain if seen[plain] == 1 else identify(mutant, source, seen[plain])), mutant
