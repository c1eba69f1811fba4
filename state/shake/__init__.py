"""Folds: heavy content out of the model's sight and back again, as `context_edit` entries (seed: how-shake-works).

`scanner` finds blocks in a text, `view` reads what the model sees, `wall` what is folded, `planner` decides
what a fold or an undo would change, `economics` what that costs, `command` is what a person types and reads.
"""
