#!/bin/sh
# chaos.sh - a few trials by chance of each kind; make check-chaos makes hundreds.
chaos=$(cd "$(dirname "$0")/../chaos" && pwd)
failed=0
"$chaos/kill.sh" "${KILLS:-6}" || failed=1
"$chaos/corrupt.sh" "${CORRUPTIONS:-20}" || failed=1
"$chaos/io_errors.sh" "${IO_ERRORS:-4}" || failed=1
"$chaos/allocations.sh" "${ALLOCATIONS:-12}" || failed=1
"$chaos/moves.sh" "${MOVES:-4}" || failed=1
exit $failed
