r"""Read accessibility trees as WebArena and BrowserGym write them.

One node a line, indented: `[463] button 'Total Commits'`, `StaticText 'Price'`,
`[12] checkbox 'Gift', checked='true'`, `[3] textbox '' required: True`.
"""

from __future__ import annotations

import re

from dreamgym.abstraction.nodes import STATES, Node

LINE = re.compile(
    r"""^(?P<indent>\s*)(?:\[(?P<id>[^\]\s]+)\]\s+)?(?P<role>[A-Za-z]+)\b[ ]?(?P<rest>.*)$"""
)
_NAME = re.compile(r"""^(['"])(?P<name>(?:\\.|(?!\1).|\1(?!$|,|\s+\w+\s*[:=]))*)\1(?P<rest>.*)$""")
_STATE = re.compile(r"""(\w+)\s*[:=]\s*('(?:\\.|[^'])*'|"(?:\\.|[^"])*"|[^\s,]+)""")
_ROLES = {
    "rootwebarea": "document",
    "statictext": "text",
    "inlinetextbox": "text",
    "menuitemcheckbox": "menuitemcheckbox",
    "labeltext": "label",
    "figure": "figure",
    "columnheader": "columnheader",
    "gridcell": "cell",
    "image": "img",
}


def looks_like_axtree(text: str) -> bool:
    """Return whether most lines are nodes and at least one has an id."""
    lines = [line for line in text.splitlines() if line.strip()]
    nodes = [match for line in lines if (match := _node_line(line))]
    return bool(nodes) and len(nodes) * 2 >= len(lines) and any(match["id"] for match in nodes)


def parse_axtree(text: str) -> Node:
    """Return the tree; a line that is no node is text of the node above it."""
    root = Node(role="document", children=[])
    stack: list[tuple[int, Node]] = [(-1, root)]
    for line in text.splitlines():
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        node = _read(line)
        while stack[-1][0] >= indent:
            stack.pop()
        stack[-1][1].children.append(node)
        stack.append((indent, node))
    return root


def _node_line(line: str) -> re.Match[str] | None:
    match = LINE.match(line)
    if match is None:
        return None
    rest = match["rest"]
    return match if match["id"] or rest[:1] in {"'", '"'} or not rest.strip() else None


def _read(line: str) -> Node:
    match = _node_line(line)
    if match is None:
        return Node(role="text", name=line.strip(), children=[])
    role = match["role"].casefold()
    name, rest = "", match["rest"]
    named = _NAME.match(rest)
    if named:
        name, rest = re.sub(r"\\(.)", _unescaped, named["name"]), named["rest"]
    states = {key: value.strip("'\"") for key, value in _STATE.findall(rest)}
    kept = {key: states[key] for key in STATES if states.get(key, "false").casefold() != "false"}
    if re.search(r"\bclickable\b", rest):
        kept["clickable"] = "true"
    return Node(
        role=_ROLES.get(role, role), id=match["id"] or "", name=name, states=kept, children=[]
    )


def _unescaped(match: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(match[1], match[1])
