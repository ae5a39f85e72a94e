"""What the prover must find, declared before it was run: the checks that fail of each counterfeit, and no others.

A check that is violated at level `should` warns, which counts here as failing. One declaration was corrected after its
first run: `asks_whether_we_are_in_it` raises where there is no audience, and answers 500 (P4).
"""

from __future__ import annotations

DECLARED: dict[str, frozenset[str]] = {
    name: frozenset(checks.split())
    for name, checks in {
        "asks_whether_we_are_in_it": "P3 P4",
        "admits_an_absent_audience": "P4",
        "ignores_expiry": "X1",
        "forbids_every_bad_token": "P2 P3 P4 X1",
        "forbids_another_audience": "P2 P3 P4",
        "remembers_callers_by_subject": "P2 P3 P4 X1",
        "omits_the_challenge": "P5 P6 P7",
        "challenges_with_another_scheme": "P5 P7",
        "names_an_error_without_credentials": "P6",
        "takes_no_token_for_a_trusted_caller": "P6",
        "publishes_metadata_of_the_address": "P7",
        "keeps_one_listing_for_all": "P9",
        "filters_only_listings": "P10 P11 X2",
        "explains_itself_to_a_proper_call": "P10 P11 X2",
        "grants_what_was_listed_last": "P10 P11 X2",
        "lists_the_names_to_who_mistypes": "P10 P11 X2",
        "denied_calls_are_free": "P13",
        "unknown_names_are_free": "P13",
        "one_counter_for_all": "P14 P15",
        "the_pool_is_one_short": "P14",
        "the_first_declared_caller_gets_nothing_of_the_pool": "P14 P15",
        "the_last_day_is_not_counted": "P12 X3 X4",
        "rows_are_cut_before_they_are_certified": "X4",
    }.items()
}

SHARED = frozenset(
    {f"QZ-AUD-{n}" for n in (1, 2, 3, 4, 6, 8, 9, 10, 12)}
    | {f"QZ-CRT-{n}" for n in range(2, 8)}
    | {"QZ-DEN-1", "QZ-DEN-4", "QZ-RSV-3", "QZ-RSV-4"}
)
"""The requirements that both clients have examples of."""
