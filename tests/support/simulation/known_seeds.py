"""Where a search for a mutant begins: near a seed that found it before.

This only saves time: a search tries all seeds of its range, in any case. A change of the kernel changes the seeds that find a
mutant. ``pytest -rP`` prints them; those are worth an entry before which a search takes more than a second.
"""

from __future__ import annotations

from collections.abc import Iterator

KNOWN = {
    "schedules": {
        "aborting_without_compare_and_set": 552,
        "an_earlier_life_shows": 44,
        "arrival_appended_outside_the_transaction": 17,
        "arrivals_out_of_order": 267,
        "bound_without_later_arrivals": 597,
        "child_not_read_back": 152,
        "decided_twice": 671,
        "failed_announcements_taken_as_sent": 829,
        "higher_pending_ignored": 75,
        "lost_reply_to_the_decision_read_as_a_refusal": 257,
        "merge_without_validation_against_later_commits": 1594,
        "new_instances_read_from_the_end": 299,
        "no_read_back_on_old_views": 41,
        "own_states_cached_despite_arrivals_between": 155,
        "put_for_compare_and_set": 121,
        "read_back_before_writing": 76,
        "recovery_without_compare_and_set": 285,
        "roll_back_of_committed_revisions": 281,
        "states_read_before_the_logs": 51,
        "watermark_past_unswept_revisions": 4397,
    },
    "checkpoints": {
        "changes_of_checkpoints_not_announced": 64,
        "position_before_checkpoint": 27,
        "view_of_a_checkpoint_by_its_id": 93,
    },
    "child lists": {
        "a_changed_child_list_kept_although_its_node_was_replaced": 484,
    },
    "clocks": {
        "read_back_down_to_an_estimate": 323,
    },
    "collection": {
        "branches_not_protected": 21,
        "polls_without_the_horizon": 16,
        "progress_saved_before_the_deletion": 103,
        "ranges_beyond_what_is_collected": 313,
        "trust_for_ever": 8,
    },
    "collection without order": {
        "branches_not_protected": 33,
        "checkpoints_ignored": 6,
        "missed_revisions_join_last": 26,
        "scans_without_the_horizon": 6,
        "trim_levels_overlooked": 6,
        "trust_for_ever": 32,
    },
    "histories": {
        "aborting_without_compare_and_set": 266,
        "bound_without_later_arrivals": 696,
        "changes_without_effect_rely_on_nothing": 110,
        "deleted_not_read_back": 126,
        "everything_below_the_head_is_visible": 96,
        "expectations_not_depended_on": 28,
        "expected_absence_not_depended_on": 710,
        "last_revision_not_read_back": 313,
        "pending_taken_for_aborted": 96,
        "put_for_compare_and_set": 204,
    },
    "histories of adjusts": {
        "adjusts_ignore_sets": 188,
        "sets_ignore_adjusts": 50,
        "total_taken_from_the_head": 69,
    },
    "adjusts": {
        "first_adjust_beside_any_base": 25,
        "first_adjust_not_read_back": 25,
        "fold_depends_on_nothing": 1971,
        "merge_without_the_totals": 54,
        "total_taken_from_the_head": 36,
    },
    "leases": {
        "held_snapshots_with_too_many_revisions": 155,
        "held_snapshots_without_revisions_above": 2528,
        "hidden_revisions_lost_when_shortened": 2070,
        "late_cells_not_hidden": 21,
        "shortened_past_possible_late_revisions": 207,
    },
    "shared branches": {
        "claims_of_rebases_never_final": 786,
        "merged_adjusts_are_applied_again": 270,
        "merged_adjusts_unknown_to_later_sets": 18034,
        "new_branches_take_effect_before_old_ones_have_ended": 12602,
        "rebases_in_one_transaction_claim_nothing": 4355,
        "rebases_in_one_transaction_overlook_claims": 3860,
        "resets_move_the_head_of_a_claimed_branch_back": 4456,
        "transactions_of_branches_do_not_compare_the_head": 188,
        "transactions_that_merge_do_not_look_at_the_branch": 38,
    },
    # The numbers of pairs of operations.
    "pairs": {
        "changes_without_effect_rely_on_nothing": 271,
        "child_not_read_back": 72,
        "deleted_not_read_back": 75,
        "last_revision_not_read_back": 75,
        "names_not_kept_apart": 73,
    },
}


def search(kind: str, mutant: str, count: int) -> Iterator[int]:
    """Yield all seeds below ``count``: those from the known one on, then those before it."""
    first = KNOWN.get(kind, {}).get(mutant, 0)
    yield from range(first, count)
    yield from range(first)
