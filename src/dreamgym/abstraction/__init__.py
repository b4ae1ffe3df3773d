"""Pages as abstract states: title, a few elements worth acting on, tables, messages."""

from __future__ import annotations

from dreamgym.abstraction.mapper import Mapper, RuleMapper, read_page
from dreamgym.abstraction.model import ModelMapper
from dreamgym.abstraction.page import Element, Page, Table
from dreamgym.abstraction.render import AbstractionSettings
from dreamgym.abstraction.suite import AbstractSuite

__all__ = [
    "AbstractSuite",
    "AbstractionSettings",
    "Element",
    "Mapper",
    "ModelMapper",
    "Page",
    "RuleMapper",
    "Table",
    "read_page",
]
