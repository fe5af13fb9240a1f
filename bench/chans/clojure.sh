#!/bin/sh
# Does the jobs of bench/chans in core.async itself, with Debian's packages clojure
# and libcore-async-clojure, and in package chans, one after the other on this
# machine, and prints both side by side. Without the packages it says so and exits
# with 0.
#
#	sh bench/chans/clojure.sh [ROUNDS]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
jars=/usr/share/java
rounds=${1:-15}

skip() {
	echo "clojure.sh: SKIPPED, nothing is compared: $1; on Debian: apt-get install clojure libcore-async-clojure"
	exit 0
}

command -v java >/dev/null || skip "there is no java"
path=
for jar in clojure spec.alpha core.specs.alpha core.async tools.analyzer tools.analyzer.jvm tools.reader \
	core.memoize core.cache data.priority-map asm; do
	[ -e "$jars/$jar.jar" ] || skip "there is no $jars/$jar.jar"
	path=$path:$jars/$jar.jar
done

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
load() { cut -d ' ' -f 1 /proc/loadavg 2>/dev/null || echo unknown; }

before=$(load)
java -cp "${path#:}" clojure.main "$here/clojure.clj" "$rounds" >"$results/clojure"
# It exits with 1 above a limit, too, after it has printed all.
(cd "$here/../.." && go run ./bench/chans -json) >"$results/go" || [ -s "$results/go" ]

head -n 1 "$results/clojure"
echo "chans and by hand: $(cd "$here" && go version)"
echo "$(getconf _NPROCESSORS_ONLN) processors, load $before before and $(load) after; nanoseconds an item"
echo
awk -F '\t' '
function field(name) {
	match($0, "\"" name "\":[^,}]*")
	return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
}
BEGIN { printf "%-28s %12s %10s %10s %20s\n", "job", "core.async", "chans", "by hand", "core.async : chans" }
NR == FNR { if (NF == 2) theirs[$1] = $2; next }
{
	name = field("name")
	gsub(/"/, "", name)
	if (!(name in theirs)) next
	printf "%-28s %12.1f %10.1f %10.1f %20.1f\n", name, theirs[name], field("ns"), field("hand_ns"), theirs[name] / field("ns")
	shown++
}
END { if (!shown) exit 1 }
' "$results/clojure" "$results/go"
