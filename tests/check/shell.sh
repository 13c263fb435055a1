#!/bin/sh
# Every shell script parses with the strictest shell at hand and passes shellcheck.
set -eu
cd "$(dirname "$0")/../.."
status=0
for script in dev .ci/run $(git ls-files -co --exclude-standard -- '*.sh'); do
    case $(head -n 1 "$script") in
    '#!'*bash*) bash -n "$script" || status=1 ;;
    *) sh -n "$script" || status=1 ;;
    esac
    shellcheck -x "$script" || status=1
done
exit "$status"
