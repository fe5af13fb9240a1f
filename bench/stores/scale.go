package main

import "time"

// scale is how much is measured.
type scale struct {
	rounds    int
	single    int           // transactions or claims one by one, in a round
	batch     int           // items in a transaction
	batches   int           // of them in a round
	slower    time.Duration // what a commit takes longer, where that is simulated
	callers   int           // at once
	perCaller int           // claims of each, in a round
	overdue   int           // records to prune
	before    int           // claims before that
	copies    int           // of keys that the guard knows
	stored    int           // keys that only the store knows
	sizes     []int         // of the table; nil: not measured
	samples   int           // of claims at each size
}

func fullScale() scale {
	return scale{
		rounds: 11, single: 128, batch: 256, batches: 4,
		callers: 64, perCaller: 16,
		overdue: 1_000_000, before: 2_000,
		copies: 500_000, stored: 1 << 14,
		samples: 400,
	}
}

// longSizes are those of the long run.
var longSizes = []int{100_000, 1_000_000, 10_000_000}
