package main

import (
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFlags(t *testing.T) {
	c := flags(t, "-quick", "-buffers", "0, 7", "-loads", "0.5,1.2", "-guards", "none,completed,ours-16",
		"-workers", "2", "-service", "1ms", "-timeout", "50ms", "-exponential", "-keys", "5000",
		"-fail", "0.1", "-skew", "1.5", "-push", "-procs", "3", "-seed", "9", "-real", "-results", "there")
	want := setup{
		Quick: true, Seed: 9, Keys: 5000, Buffers: []int{0, 7}, Loads: []float64{0.5, 1.2},
		Guards: []string{"none", "completed", "ours-16"}, Workers: 2, Service: time.Millisecond,
		Timeout: 50 * time.Millisecond, Exponential: true, Fail: 0.1, Skew: 1.5, Push: true,
	}
	got := c.setup
	if !slices.Equal(got.Buffers, want.Buffers) || !slices.Equal(got.Loads, want.Loads) || !slices.Equal(got.Guards, want.Guards) {
		t.Errorf("lists: %+v", got)
	}
	for _, cell := range partOf(t, c, "sweep").cells {
		if cell.Workers != 2 || cell.Service != time.Millisecond || cell.Timeout != 50*time.Millisecond || !cell.Exponential ||
			cell.Keys != 5000 || cell.Fail != 0.1 || cell.Skew != 1.5 || !cell.Push {
			t.Fatalf("a cell doesn't follow the flags: %+v", cell)
		}
	}
	if c.procs != 3 || !c.real || c.results != "there" || c.Seed != 9 {
		t.Errorf("got %+v", c)
	}
}

func TestFlagErrors(t *testing.T) {
	for args, want := range map[string]string{
		"-buffers 1,x":                       "-buffers",
		"-buffers -1":                        "-buffers: -1",
		"-loads 0":                           "-loads: 0",
		"-loads 1,,2":                        "-loads",
		"-guards nobody":                     `no guard "nobody"`,
		"-guards none-16":                    "none-16",
		"-guards completed-0":                "completed-0",
		"-guards ours-x":                     "ours-x",
		"-workers 0":                         "-workers",
		"-workers 65":                        "-workers",
		"-service 1ns":                       "-service",
		"-timeout 0":                         "-timeout",
		"-keys 10":                           "-keys",
		"-fail 1":                            "-fail",
		"-skew 0.5":                          "-skew",
		"-procs 0":                           "-procs",
		"-only everything":                   "-only is one of",
		"-only sweep -results somewhere":     "-only can't be with -results",
		"-render":                            "-render needs -results",
		"-render -real -results somewhere":   "can't be with -real",
		"sweep":                              "unexpected",
		"-quick -workers 0 -keys 1 -fail 12": "-fail",
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}
