package main

import "fmt"

// group is what there is more and more of.
type group struct {
	name  string
	title string
	about string // what is measured, in the document
	plan  func(sizes) plan
}

var groups = []group{
	{
		"keys", "Keys",
		fmt.Sprintf("New keys of %d bytes go through `Dedup` and a stage with a retry lane, with a guard that is full of other keys:\n"+
			"each one that comes in pushes another one out. The last two columns say what bounds the guard that grows with the\n"+
			"number of keys: by itself, in one goroutine; and one read at a random place in as many bytes, which waits for the one before it.", keyLength),
		keys,
	},
	{
		"workers", "Workers",
		"The same items through one stage with more and more workers, beside as many goroutines that read one bare channel. A\n" +
			"worker's time for an item is the time of the whole divided by the items that each worker had. The processor has the cores that are named\n" +
			"above: beyond these, more workers can't make trivial work faster, and must not make it slower. The waits are real ones: a\n" +
			"runtime that has nothing else to do wakes a sleeper up to a millisecond late, so that few workers wait longer than they ask for.",
		workers,
	},
	{
		"parked", "Parked items",
		fmt.Sprintf("Items that fail once and wait in the retry lane, all of them at the same time, with as many slots. *Parking* is the time from\n"+
			"the source to the lane, with the failed attempt; *bringing back* that from the lane to the end, when more are due than can be run.\n"+
			"Memory is that of a parked item with its default backoff, less that of an item which only waits in a buffer. Lateness\n"+
			"is measured where items fall due at random, one in %v.", stroll),
		parked,
	},
	{
		"pipelines", "Pipelines in one process",
		fmt.Sprintf("Small pipelines side by side: a source, a `Dedup` with a guard of %s keys, a stage with two workers and a retry lane, a sink;\n"+
			"beside as many chains of bare channels with as many workers, which know no keys and no retries.\n"+
			"*Start and end* is a whole life with a single item in it. Memory (with stacks) and goroutines (with the one that called `Run`) are those of\n"+
			"pipelines that run and have nothing to do.", number(remembered)),
		pipelines,
	},
}

// series is a quantity that is measured at several sizes.
type series struct {
	id     string // group/name
	label  string // in pictures
	text   string
	unit   string
	bounds []bound
}

// bound is a limit that a series is held to.
type bound struct {
	what  string
	limit float64
}

// What of a series is held to a limit.
const (
	slope = "slope"
	last  = "at the largest n"
	inAll = "in all"
)

const (
	nanoseconds  = "ns"
	microseconds = "µs"
	milliseconds = "ms"
	bytes        = "bytes"
	kilobytes    = "kB"
	ratios       = "ratio"
	goroutines   = "goroutines"
)

// flat is the slope that counts as none: 0.15 is 1.41 times the cost for ten
// times as many.
const flat = 0.15

// all are the series, in the order of the tables.
func all() []series {
	isFlat := []bound{{slope, flat}}
	return []series{
		{"keys/stage", "a stage alone", "a key through a stage alone", nanoseconds, isFlat},
		{"keys/default", "Dedup, default guard", "through `Dedup` with its default guard", nanoseconds, isFlat},
		{"keys/all", "Dedup, guard for all", "through `Dedup` with a guard for all keys", nanoseconds, isFlat},
		{"keys/bytes", "guard", "memory of that guard for a key", bytes, []bound{{slope, flat}, {last, 32}}},
		{"keys/ring", "that guard by itself", "a key in that guard by itself", nanoseconds, nil},
		{"keys/read", "one far read", "one read in as many bytes", nanoseconds, nil},

		{"workers/trivial", "trivial work", "trivial work, an item", nanoseconds, isFlat},
		{"workers/bare", "same, bare channel", "the same on a bare channel", nanoseconds, nil},
		{"workers/100µs", "waits of 100 µs", "waits of 100 µs, a worker's time for one", nanoseconds, isFlat},
		{"workers/100µs-over", "waits of 100 µs", "waits of 100 µs : the same on a bare channel", ratios, isFlat},
		{"workers/1ms", "waits of 1 ms", "waits of 1 ms, a worker's time for one", nanoseconds, isFlat},
		{"workers/1ms-over", "waits of 1 ms", "waits of 1 ms : the same on a bare channel", ratios, isFlat},

		{"parked/park", "parking", "parking an item", nanoseconds, isFlat},
		{"parked/back", "coming back", "bringing it back", nanoseconds, isFlat},
		{"parked/bytes", "parked", "memory of a parked item beyond the item", bytes, isFlat},
		{"parked/stats", "Stats", "a look at `Stats` for each of them", nanoseconds, nil},
		{"parked/late50", "late, median", "how late it is, median", milliseconds, nil},
		{"parked/late99", "late, p99", "how late it is, p99", milliseconds, []bound{{last, 5}}},

		{"pipelines/life", "start and end", "start and end of a pipeline", nanoseconds, isFlat},
		{"pipelines/item", "an item", "an item, all of them running", nanoseconds, isFlat},
		{"pipelines/bare", "same, bare channels", "the same on bare channels", nanoseconds, nil},
		{"pipelines/bytes", "pipelines", "memory of a pipeline", bytes, isFlat},
		{"pipelines/goroutines", "goroutines", "goroutines of a pipeline", goroutines, isFlat},
	}
}

// left is the series of what a group leaves behind, which has no size.
func left(g group) series {
	return series{g.name + "/left", "", "goroutines left after all that was measured of " + g.name, goroutines, []bound{{inAll, 0}}}
}
