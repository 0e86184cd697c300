"""What a check says: one line each, counted."""

SHOWN = 20  # findings printed per failed check; the rest is counted


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, findings, counted):
        """Passes when `findings` (strings, one per fault) is empty; `counted` says over what it looked."""
        findings = list(findings)
        if not findings:
            self.passed += 1
            print(f"ok   {name} ({counted})")
            return
        self.failed += 1
        print(f"FAIL {name} ({counted}; {len(findings)} found)")
        for finding in findings[:SHOWN]:
            print(f"       {finding}")
        if len(findings) > SHOWN:
            print(f"       ... and {len(findings) - SHOWN} more")

    def skip(self, name, why):
        self.skipped += 1
        print(f"SKIP {name}: {why}")

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed else 0
