package main

import (
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// row is a cell and what was measured in it: a line of a CSV. It holds nothing of
// the machine.
type row struct {
	Guard       sim.Guard     `csv:"guard"`
	Capacity    int           `csv:"capacity"` // of the LRU; 0: unbounded, or no LRU
	Buffer      int           `csv:"buffer"`
	Workers     int           `csv:"workers"`
	Load        float64       `csv:"load"`
	Service     time.Duration `csv:"service"`
	Exponential bool          `csv:"exponential"`
	Timeout     time.Duration `csv:"timeout"`
	Push        bool          `csv:"push"`
	StoreTime   time.Duration `csv:"store_time"`
	Lease       time.Duration `csv:"lease"`
	Burst       int           `csv:"burst"`
	Fail        float64       `csv:"fail"`
	AckLoss     float64       `csv:"ack_loss"`
	AckDelay    time.Duration `csv:"ack_delay"`
	Skew        float64       `csv:"skew"`
	SkewKeys    int           `csv:"skew_keys"`
	Crash       time.Duration `csv:"crash"`
	Seed        uint64        `csv:"seed"`

	Warmup     int           `csv:"warmup"` // messages that were not measured
	Keys       int           `csv:"keys"`
	Effects    int           `csv:"effects"`
	Extra      int           `csv:"extra"`
	Claim      int           `csv:"claim"`
	Late       int           `csv:"late"`
	Restart    int           `csv:"restart"`
	Lost       int           `csv:"lost"`
	Sends      int           `csv:"sends"`
	P          float64       `csv:"p_late"`
	Goodput    float64       `csv:"goodput"`
	Sojourn    time.Duration `csv:"sojourn"`
	SojournP99 time.Duration `csv:"sojourn_p99"`
	Collapsed  bool          `csv:"collapsed"`
	Simulated  time.Duration `csv:"simulated"`
	Items      int           `csv:"items"`
}

func newRow(c sim.Cell, r sim.Result) row {
	return row{
		Guard: c.Guard, Capacity: c.Capacity, Buffer: c.Buffer, Workers: c.Workers, Load: c.Load,
		Service: c.Service, Exponential: c.Exponential, Timeout: c.Timeout, Push: c.Push, StoreTime: c.StoreTime, Lease: c.Lease,
		Burst: c.Burst, Fail: c.Fail, AckLoss: c.AckLoss, AckDelay: c.AckDelay, Skew: c.Skew, SkewKeys: c.SkewKeys,
		Crash: c.Crash, Seed: c.Seed, Warmup: c.Warmup,
		Keys: r.Keys, Effects: r.Effects, Extra: r.Extra, Claim: r.Claim, Late: r.Late, Restart: r.Restart,
		Lost: r.Lost, Sends: r.Sends, P: r.P, Goodput: r.Goodput, Sojourn: r.Sojourn, SojournP99: r.SojournP99,
		Collapsed: r.Collapsed, Simulated: r.Simulated, Items: r.Items,
	}
}

// cell is what the theory and the tables know of the row's cell.
func (r row) cell() sim.Cell {
	return sim.Cell{
		Buffer: r.Buffer, Workers: r.Workers, Load: r.Load, Service: r.Service, Exponential: r.Exponential,
		Timeout: r.Timeout,
	}
}

// label is the row's guard, with its capacity where that matters.
func (r row) label() string { return guardian{r.Guard, r.Capacity}.String() }

// extra is the extra effects for each key.
func (r row) extra() float64 { return float64(r.Extra) / float64(max(1, r.Keys)) }

// promised says whether the table in flight with a guard promises that the cell has
// no extra effect. Where the guard may forget a key that comes again much later (a
// lost ack, a natural repeat), and after a kill, it doesn't.
func (r row) promised() bool {
	forgets := r.Capacity > 0 && (r.AckLoss > 0 || r.Skew > 0) && r.Guard != sim.OursStore
	return (r.Guard == sim.Ours || r.Guard == sim.OursStore) && r.Crash == 0 && !forgets
}

// broken says what was promised and not held; "" is good.
func (r row) broken() string {
	switch {
	case !r.promised():
		return ""
	case r.Extra > 0:
		return "extra effects"
	case r.Lost > 0:
		return "keys lost"
	}
	return ""
}
