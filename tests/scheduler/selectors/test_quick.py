"""Order and factored scan, the express lane's own selectors, by hand: they pick what heap and scan pick on the two queries of the examples.

SRPT: 1/4 and 1/2, so B, A. BRT at 10: 1.5 and 1.25, so A; at 2: 0 and 0.25, so B.
"""

from millstream.scheduler.policies.balance_response_time import BalanceResponseTime
from millstream.scheduler.policies.shortest_remaining_processing_time import ShortestRemainingProcessingTime
from millstream.scheduler.simulation.quick_selectors import FactoredSelector, OrderSelector

from tests.support.scheduler_worlds import two_queries


def test_order_marks_what_is_available_in_the_order_of_ranks() -> None:
    view = two_queries("srpt").core.view
    selector = OrderSelector(ShortestRemainingProcessingTime())
    selector.reset(view, 10)
    assert selector.pick(view, 10, 2) == [1, 0]
    view.units.available[1] = False
    selector.changed(view, [1], 10)
    assert selector.pick(view, 10, 1) == [0]


def test_factored_multiplies_the_fixed_part_by_the_wait() -> None:
    view = two_queries("brt").core.view
    selector = FactoredSelector(BalanceResponseTime())
    selector.reset(view, 10)
    assert selector.pick(view, 10, 1) == [0]
    assert selector.pick(view, 2, 1) == [1]
    assert selector.pick(view, 10, 2) == [0, 1]
