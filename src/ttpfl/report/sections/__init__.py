"""The sections of the page, in order. Each is built from a study, or None if there is nothing to show."""

from collections.abc import Callable

from ttpfl.report.parts import Section
from ttpfl.report.sections.audit import audit
from ttpfl.report.sections.breakdown import breakdown
from ttpfl.report.sections.clients import clients
from ttpfl.report.sections.comparison import comparison
from ttpfl.report.sections.cost import cost
from ttpfl.report.sections.curves import curves
from ttpfl.report.sections.guards import guards
from ttpfl.report.sections.pictures import pictures
from ttpfl.report.sections.provenance import provenance
from ttpfl.report.sections.rates import rates
from ttpfl.report.sections.streams import streams
from ttpfl.report.sections.toy import toy
from ttpfl.report.sections.tradeoff import tradeoff
from ttpfl.report.sections.variation import variation
from ttpfl.report.study import Study

SECTIONS: tuple[Callable[[Study], Section | None], ...] = (
    comparison, toy, streams, tradeoff, variation, clients, guards, rates,
    curves, breakdown, pictures, cost, audit, provenance,
)  # fmt: skip
