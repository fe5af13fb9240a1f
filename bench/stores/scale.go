package main

import "time"

// scale is how much is measured. Some of it is a part of the rows' names.
type scale struct {
	Rounds    int           `json:"rounds"`
	Single    int           `json:"single"`    // transactions or claims one by one, in a round
	Batch     int           `json:"batch"`     // items in a transaction
	Batches   int           `json:"batches"`   // of them in a round
	Together  []int         `json:"together"`  // items in a call, where rates are measured
	Slower    time.Duration `json:"slower"`    // what a commit takes longer, where that is simulated
	Callers   int           `json:"callers"`   // at once
	PerCaller int           `json:"perCaller"` // claims of each, in a round
	Overdue   int           `json:"overdue"`   // records to prune
	Before    int           `json:"before"`    // claims before that
	Copies    int           `json:"copies"`    // of keys that the guard knows
	Stored    int           `json:"stored"`    // keys that only the store knows
	Sizes     []int         `json:"sizes"`     // of the table; nil: not measured
	Samples   int           `json:"samples"`   // of claims at each size
}

func fullScale() scale {
	return scale{
		Rounds: 11, Single: 128, Batch: 256, Batches: 4, Together: []int{4, 16, 64, 256},
		Callers: 64, PerCaller: 16,
		Overdue: 1_000_000, Before: 2_000,
		Copies: 500_000, Stored: 1 << 14,
		Samples: 400,
	}
}

// quickScale takes a minute. The sizes that ratios depend on are the same.
func quickScale() scale {
	s := fullScale()
	s.Rounds, s.Single, s.Batches = 7, 48, 3
	s.PerCaller = 8
	s.Overdue, s.Before = 50_000, 500
	s.Copies, s.Stored = 200_000, 1<<12
	return s
}

// longSizes are those of the long run.
var longSizes = []int{100_000, 1_000_000, 10_000_000}
