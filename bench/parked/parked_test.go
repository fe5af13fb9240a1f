package parked

import "testing"

func TestReport(t *testing.T) {
	rows, err := Report()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if !r.OK || r.Ratio < 16 {
			t.Errorf("%+v", r)
		}
	}
}
