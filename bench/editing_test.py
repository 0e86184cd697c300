#!/usr/bin/env python3
"""The edits that bench/editing.py asks for change what they say and nothing else."""
import ast
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import editing  # noqa: E402
import editing_prompts as prompts  # noqa: E402

CODE = '''def total(items, factor=2, label="sum"):
    """Returns the weighted total of several numbers, rounded towards nothing whatever."""
    # The result begins empty, whatever the caller passed before.
    result = 0
    for item in items:
        # Several items count double.
        result += item * factor  # never negative
        self.result = result
    return label, result'''


class Kinds(unittest.TestCase):
    def test_a_variable_is_renamed_everywhere_but_as_an_attribute(self):
        _, before, after = prompts.rename_variable(CODE)
        self.assertEqual(before, CODE)
        self.assertIn("self.result = current_result", after)
        self.assertEqual(after.replace("current_result", "result"), CODE)

    def test_wrong_spelling_is_in_the_question_and_no_code_is_touched(self):
        _, before, after = prompts.fix_spelling(CODE)
        self.assertEqual(after, CODE)
        self.assertNotEqual(before, CODE)
        self.assertEqual(sorted(before), sorted(after))
        strip = lambda text: [line for line in prompts.remove_comments(text)[2].split("\n") if '"""' not in line]  # noqa: E731
        self.assertEqual(strip(before), strip(after))

    def test_hints_are_the_types_of_the_defaults(self):
        self.assertIn('total(items, factor: int = 2, label: str = "sum"):', prompts.add_hints(CODE)[2])

    def test_comments_go_and_the_code_stays(self):
        after = prompts.remove_comments(CODE)[2]
        self.assertNotIn("#", after)
        self.assertEqual(ast.dump(ast.parse(after)), ast.dump(ast.parse(CODE)))

    def test_a_check_stands_behind_the_docstring(self):
        lines = prompts.add_check("def f(a):\n    \"\"\"Doc.\"\"\"\n    return a")[2].split("\n")
        self.assertEqual(lines[2], "    if a is None:")


class Edits(unittest.TestCase):
    def test_there_are_twenty_of_the_library_of_this_python_the_same_each_time(self):
        edits = prompts.edits()
        self.assertEqual([e.source for e in edits], [e.source for e in prompts.edits()])
        self.assertEqual(len({e.source for e in edits}), 20)
        for edit in edits:
            self.assertNotEqual(edit.before, edit.after, edit.source)
            ast.parse(edit.before), ast.parse(edit.after)

    def test_the_code_of_an_answer_is_found(self):
        edit = prompts.Edit("", "", "Do.", "a = 1", "b = 1")
        self.assertEqual(editing.code_of(f"Here:\n\n{edit.answer()}\n\nDone."), "b = 1")
        self.assertEqual(editing.code_of("```python\nb = 1"), "b = 1")

    def test_the_summary_counts_tokens_and_not_edits(self):
        rows = [{"tokens": 100, "drafted": 50, "accepted": 50}, {"tokens": 300, "drafted": 150, "accepted": 0}]
        found = editing.summary(rows)
        self.assertEqual((found["acceptance"], found["tokens_a_step"]), (0.25, round(400 / 350, 3)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
