package picture

import (
	"bytes"
	"image/png"
	"strings"
	"testing"
)

func chart() Chart {
	buffers := []float64{0, 1, 4, 16, 64, 256, 1024}
	return Chart{
		Title: "Extra effects", X: "buffer", Y: "%", XLog: true, YLog: true, XTicks: buffers, YFloor: 0.01,
		Series: []Series{
			{Name: "none", X: buffers, Y: []float64{0, 0, 0, 0.5, 80, 400, 1600}, Line: true, Dots: true},
			{Name: "theory", X: buffers, Y: []float64{0, 0, 0, 0.6, 85, 410, 1650}, Dash: true},
			{Name: "ours", X: buffers, Y: make([]float64, 7), Line: true, Dots: true},
		},
	}
}

func heat() Heat {
	return Heat{
		Title: "Mechanisms", Rows: []string{"nothing", "Tx"}, Columns: []string{"in flight", "failure\nafter"},
		Cells: [][]HeatCell{{{"12 doubled", 3}, {"0", 0}}, {{"0", 0}, {"no", -1}}},
	}
}

func TestPictures_AreTheSameBytesEachTime(t *testing.T) {
	for name, draw := range map[string]func() ([]byte, error){
		"chart": chart().SVG, "heat": heat().SVG,
		"grid": func() ([]byte, error) { return Grid([][]Chart{{chart(), chart()}, {chart()}}) },
	} {
		first, err := draw()
		if err != nil {
			t.Fatal(name, err)
		}
		second, err := draw()
		if err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s: %v, or other bytes", name, err)
		}
		if !strings.Contains(string(first), "<svg") || !strings.Contains(string(first), "</svg>") {
			t.Errorf("%s is no SVG", name)
		}
	}
}

func TestPictures_HaveTheirTexts(t *testing.T) {
	text, err := chart().SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Extra effects", "buffer", "theory", ">1024<", ">0<", ">100<"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the chart", want)
		}
	}
	text, err = heat().SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Mechanisms", "nothing", "12 doubled", ">after<"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the heat map", want)
		}
	}
}

func TestPictures_RefuseWhatDoesNotFit(t *testing.T) {
	c := chart()
	c.Series[0].Y = c.Series[0].Y[1:]
	if _, err := c.SVG(); err == nil {
		t.Error("a point without y was drawn")
	}
	h := heat()
	h.Cells[1] = h.Cells[1][1:]
	if _, err := h.SVG(); err == nil {
		t.Error("a row with a cell too few was drawn")
	}
}

func TestPNG(t *testing.T) {
	for name, draw := range map[string]func() ([]byte, error){"chart": chart().PNG, "heat": heat().PNG} {
		data, err := draw()
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := png.Decode(bytes.NewReader(data)); err != nil {
			t.Error(name, err)
		}
	}
}
