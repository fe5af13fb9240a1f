package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// parse reads the flags.
func parse(args []string, out io.Writer) (config, error) {
	f := flag.NewFlagSet("window", flag.ContinueOnError)
	f.SetOutput(out)
	var (
		c                      config
		buffers, loads, guards string
		dir                    string
	)
	f.BoolVar(&c.Quick, "quick", false, "a small sweep of 20 000 keys a cell")
	f.StringVar(&dir, "results", "", "write data, pictures and window.md to this `directory`")
	f.BoolVar(&c.render, "render", false, "measure nothing: make the pictures and window.md again, of the data files in -results")
	f.Uint64Var(&c.Seed, "seed", 1, "of all random numbers: the same seed gives the same results")
	f.BoolVar(&c.real, "real", false, "also measure in real time, on SQLite and on the PostgreSQL of ONCEPIPE_POSTGRES")
	f.StringVar(&buffers, "buffers", "", "sizes of the buffer, such as 0,16,1024 (default: the sweep's)")
	f.StringVar(&loads, "loads", "", "new keys over capacity, such as 0.8,1.05 (default: the sweep's)")
	f.StringVar(&guards, "guards", "", "such as none,completed-256,ours-256 (default: the sweep's)")
	f.IntVar(&c.Workers, "workers", 4, "effects at the same time")
	f.DurationVar(&c.Service, "service", 500*time.Microsecond, "time that an effect takes")
	f.DurationVar(&c.Timeout, "timeout", 20*time.Millisecond, "the sender sends again when it has no ack after that")
	f.BoolVar(&c.Exponential, "exponential", false, "draw service times from an exponential distribution")
	f.IntVar(&c.Keys, "keys", 0, "messages in a cell (default 20000 with -quick, else 100000)")
	f.Float64Var(&c.Fail, "fail", 0, "share of attempts that fail and are tried again by the pipeline")
	f.Float64Var(&c.Skew, "skew", 0, "exponent, above 1, of a Zipf distribution of keys; 0: every message has a key of its own")
	f.BoolVar(&c.Push, "push", false, "the sender's clock runs while it is blocked")
	f.IntVar(&c.procs, "procs", runtime.GOMAXPROCS(0), "cells that run at the same time; the results don't depend on it")
	f.StringVar(&c.only, "only", "", "measure only this `part`, on the terminal: "+strings.Join(partNames, ", "))
	if err := f.Parse(args); err != nil {
		return c, err
	}
	c.results = results.Dir(dir)
	if c.Keys == 0 {
		if c.Keys = 100_000; c.Quick {
			c.Keys = 20_000
		}
	}
	return c, errors.Join(c.lists(buffers, loads, guards), c.check(f.Args()))
}

// lists fills in what is swept.
func (s *setup) lists(buffers, loads, guards string) (err error) {
	s.Buffers, s.Loads, s.Guards = fullBuffers, fullLoads, fullGuards
	if s.Quick {
		s.Buffers, s.Loads, s.Guards = quickBuffers, quickLoads, quickGuards
	}
	if buffers != "" {
		if s.Buffers, err = list(buffers, strconv.Atoi); err != nil {
			return fmt.Errorf("-buffers: %w", err)
		}
	}
	if loads != "" {
		if s.Loads, err = list(loads, func(t string) (float64, error) { return strconv.ParseFloat(t, 64) }); err != nil {
			return fmt.Errorf("-loads: %w", err)
		}
	}
	if guards != "" {
		all, err := list(guards, parseGuardian)
		if err != nil {
			return fmt.Errorf("-guards: %w", err)
		}
		s.Guards = nil
		for _, g := range all {
			s.Guards = append(s.Guards, g.String())
		}
	}
	return nil
}

func list[T any](text string, parse func(string) (T, error)) (all []T, err error) {
	for t := range strings.SplitSeq(text, ",") {
		v, err := parse(strings.TrimSpace(t))
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// check says what is wrong with the flags.
func (c config) check(rest []string) error {
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(len(rest) == 0, "unexpected arguments %q", rest)
	must(c.Workers >= 1 && c.Workers <= 64, "-workers is 1 to 64")
	must(c.Service >= 20*time.Microsecond, "-service is at least 20µs")
	must(c.Timeout >= 2*c.Service, "-timeout is at least twice -service")
	must(c.Keys >= 400, "-keys is at least 400")
	must(c.Fail >= 0 && c.Fail < 1, "-fail is at least 0 and below 1")
	must(c.Skew == 0 || c.Skew > 1, "-skew is 0 or above 1")
	must(c.procs >= 1, "-procs is at least 1")
	must(c.only == "" || slices.Contains(partNames, c.only), "-only is one of %s", strings.Join(partNames, ", "))
	must(c.only == "" || c.results == "", "-only can't be with -results: a document is made of all parts")
	must(!c.render || c.results != "", "-render needs -results, where the data files are")
	must(!c.render || !c.real, "-render measures nothing, so it can't be with -real")
	for _, b := range c.Buffers {
		must(b >= 0, "-buffers: %d", b)
	}
	for _, l := range c.Loads {
		must(l > 0, "-loads: %v", l)
	}
	return errors.Join(errs...)
}
