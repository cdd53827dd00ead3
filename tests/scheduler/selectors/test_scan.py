"""Scan, by hand: of ranks 1.5 and 1.25 (BRT at 10) the first goes, of 0 and 0.25 (at 2) the second; every available unit is ranked."""

from millstream.scheduler.policies.balance_response_time import BalanceResponseTime
from millstream.scheduler.selectors.scan import ScanSelector

from tests.support.scheduler_worlds import two_queries


def test_all_that_is_available_is_ranked_at_every_decision() -> None:
    view = two_queries("brt").core.view
    selector = ScanSelector(BalanceResponseTime())
    assert selector.pick(view, 10, 2) == [0, 1]
    assert selector.pick(view, 2, 1) == [1]
    assert selector.evaluations == 4
    view.units.available[0] = False
    assert selector.pick(view, 10, 2) == [1]
