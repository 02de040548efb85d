#!/bin/sh
# The tests of greet: one check per line; the exit code is the number of failures.
failed=0
check() {
	if [ "$2" = "$3" ]; then
		echo "ok      $1"
	else
		echo "FAILED  $1: got '$2', wanted '$3'"
		failed=$((failed + 1))
	fi
}
check "greets by name" "$(sh greet Ada)" "Hello, Ada!"
check "shouts" "$(sh greet --shout Ada)" "HELLO, ADA!"
check "refuses nobody" "$(sh greet 2>/dev/null || echo refused)" "refused"
exit "$failed"
