// Package parked measures what an item that waits for a retry costs beside the
// item itself: its part of the retry lane's index.
package parked

import (
	"math/rand/v2"

	"github.com/oncepipe/oncepipe/bench/internal/ratio"
	"github.com/oncepipe/oncepipe/internal/due"
)

const items = 1_000_000

// admission is what the lane keeps beside the index: when the item was admitted.
const admission = 8

// Report measures the index with a million items in it, after as many again have
// come and gone. The times that items are late by are reported by
// BenchmarkParked in the root package.
func Report() ([]ratio.Row, error) {
	random := rand.New(rand.NewPCG(1, 2))
	var index due.Index
	for range items {
		index.Push(random.Int64N(1 << 40))
	}
	for range items {
		_, at := index.First()
		index.Pop()
		index.Push(at + random.Int64N(1<<40))
	}
	return []ratio.Row{
		ratio.AtMost("parked/index bytes per item", float64(index.Bytes())/items+admission, 32),
	}, nil
}
