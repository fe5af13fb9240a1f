package real

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// More goes into the buffer than the database can take. How impatient the sender
// becomes depends on the machine, so that only fake_test.go says that it does.
func overload(b Backend, g Guard) Cell {
	return Cell{Store: b.Name, Buffer: 128, Load: 4, Guard: g, For: 200 * time.Millisecond, Seed: 1}
}

func TestRun(t *testing.T) {
	var rows []Result
	var left strings.Builder
	for _, b := range Backends(t.TempDir(), &left) {
		for _, g := range Guards() {
			r, err := Run(t.Context(), b, overload(b, g))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", r)
			rows = append(rows, r)
			again := r.Deliveries - r.Keys
			if r.Keys == 0 || again < 0 || r.Lost != 0 || r.Rows != r.Keys+r.Extra || r.Extra > again {
				t.Errorf("keys, copies and rows are not in accord: %+v", r)
			}
			switch {
			case g == None && r.Extra != again:
				t.Errorf("without a guard, each copy is a row: %+v", r)
			case holds(g) && r.Extra != 0:
				t.Errorf("extra rows: %+v", r)
			}
			if r.Capacity <= 0 || r.Service <= 0 || r.Timeout != services*r.Service || r.Threshold != float64(39*b.Workers) {
				t.Errorf("what the cell depends on: %+v", r)
			}
		}
	}
	t.Log(left.String())
	dir := results.Dir(t.TempDir())
	if err := results.WriteCSV(dir, "real.csv", rows); err != nil {
		t.Fatal(err)
	}
	if back, err := results.ReadCSV[Result](dir, "real.csv"); err != nil || len(back) != len(rows) || back[0] != rows[0] {
		t.Errorf("read back: %+v, %v", back, err)
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	b := sqlite(t)
	ctx, cancel := context.WithTimeout(t.Context(), looks*each+200*time.Millisecond)
	defer cancel()
	c := overload(b, None)
	c.For = time.Hour
	if r, err := Run(ctx, b, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRun_TellsOfABrokenGuard(t *testing.T) {
	for _, broken := range []struct {
		name string
		tx   func(p *place) effect
	}{
		{"two rows of a key", func(p *place) effect {
			return func(ctx context.Context, key string) error {
				return errors.Join(p.insert(ctx, key), p.insert(ctx, key))
			}
		}},
		{"an ack without a row", func(p *place) effect {
			return func(ctx context.Context, key string) error { return nil }
		}},
	} {
		b := sqlite(t)
		open := b.open
		b.open = func(ctx context.Context) (*place, error) {
			p, err := open(ctx)
			if err == nil {
				p.tx = broken.tx(p)
			}
			return p, err
		}
		if r, err := Run(t.Context(), b, overload(b, Tx)); !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %+v, %v", broken.name, r, err)
		}
	}
}

func TestRun_EndsWhenAnEffectFails(t *testing.T) {
	b := sqlite(t)
	refused := errors.New("the disk is full")
	open := b.open
	b.open = func(ctx context.Context) (*place, error) {
		p, err := open(ctx)
		if err != nil {
			return nil, err
		}
		insert := p.insert
		p.insert = func(ctx context.Context, key string) error {
			if key == "key-1" {
				return refused
			}
			return insert(ctx, key)
		}
		return p, nil
	}
	if r, err := Run(t.Context(), b, overload(b, Ours)); !errors.Is(err, refused) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestRun_RefusesCells(t *testing.T) {
	b := sqlite(t)
	good := overload(b, None)
	for _, spoil := range []func(*Cell){
		func(c *Cell) { c.Store = "PostgreSQL" },
		func(c *Cell) { c.Buffer = -1 },
		func(c *Cell) { c.Workers = conns + 1 },
		func(c *Cell) { c.Load = 0 },
		func(c *Cell) { c.For = 0 },
		func(c *Cell) { c.Guard = "nobody" },
	} {
		c := good
		spoil(&c)
		if r, err := Run(t.Context(), b, c); err == nil {
			t.Errorf("%+v was run: %+v", c, r)
		}
	}
}

func sqlite(t *testing.T) Backend {
	t.Helper()
	return Backends(t.TempDir(), t.Output())[0]
}
