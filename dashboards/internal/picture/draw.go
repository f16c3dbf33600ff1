//go:build unix

package main

import (
	"context"
	"image"
	"time"

	"github.com/wcharczuk/go-chart/v2"
	"github.com/wcharczuk/go-chart/v2/drawing"

	"noncegate/dashboards/internal/boards"
	"noncegate/dashboards/internal/rig"
)

// Sizes in pixels.
const (
	pageWidth   = 1200
	headHeight  = 62
	rowHeight   = 30
	graphHeight = 168
	statHeight  = 74
	gap         = 6
	titleHeight = 20
	axisWidth   = 66 // of the numbers at the left of a chart
	axisHeight  = 16 // of the times below it
	timeWidth   = 36 // of one of them
	legendLine  = 14 // of which there are two
	ticks       = 4  // steps of the numbers
)

const note = "Drawn from a Prometheus' answers (dashboards/internal/picture): two gateways, a small load, slow and mistaken clients. " +
	"No screenshot of Grafana, no measurement."

// The colours; those of lines are Grafana's classic palette, or nearly so.
var (
	backColor   = drawing.ColorFromHex("f4f5f5")
	panelColor  = drawing.ColorFromHex("ffffff")
	gridColor   = drawing.ColorFromHex("dde1e6")
	textColor   = drawing.ColorFromHex("24292e")
	dimColor    = drawing.ColorFromHex("57606a")
	greenColor  = drawing.ColorFromHex("3f9b4f")
	orangeColor = drawing.ColorFromHex("d9822b")
	redColor    = drawing.ColorFromHex("c4323f")
	noDataColor = drawing.ColorFromHex("777777")
)

func lineColor(i int) drawing.Color {
	palette := []string{"7eb26d", "eab839", "6ed0e0", "ef843c", "e24d42", "1f78c1", "ba43a9", "705da0", "508642", "cca300", "447ebc", "c15c17", "890f02", "0a437c"}
	return drawing.ColorFromHex(palette[i%len(palette)])
}

// picture is a dashboard that is being drawn.
type picture struct {
	chart.Renderer
	from, to time.Time
}

// drawBoard asks the queries of a dashboard and draws the answers.
func drawBoard(ctx context.Context, p *rig.Prometheus, b boards.Board, from, to time.Time) (image.Image, error) {
	height := headHeight
	for _, row := range b.Rows {
		height += rowHeight
		for _, panels := range row.Lines() {
			height += heightOf(panels) + gap
		}
	}
	renderer, err := chart.PNG(pageWidth, height)
	if err != nil {
		return nil, err
	}
	font, err := chart.GetDefaultFont()
	if err != nil {
		return nil, err
	}
	pic := picture{renderer, from, to}
	pic.SetFont(font)
	pic.SetDPI(72) // sizes of letters are pixels
	pic.rect(0, 0, pageWidth, height, backColor)
	pic.text(b.Title, gap, 26, 18, textColor)
	pic.text(note, gap, 46, 11, dimColor)
	y := headHeight
	for _, row := range b.Rows {
		pic.text(row.Heading(), gap, y+20, 14, textColor)
		y += rowHeight
		for _, panels := range row.Lines() {
			width := (pageWidth - gap) / len(panels)
			for i, panel := range panels {
				lines, err := ask(ctx, p, panel, from, to)
				if err != nil {
					return nil, err
				}
				pic.panel(panel, lines, gap+i*width, y, width-gap)
			}
			y += heightOf(panels) + gap
		}
	}
	var out chart.ImageWriter
	if err := pic.Save(&out); err != nil {
		return nil, err
	}
	return out.Image()
}

// heightOf is that of panels beside each other, which are of one kind.
func heightOf(panels []boards.Panel) int {
	if panels[0].Kind == boards.Stat {
		return statHeight
	}
	return graphHeight
}

func (p *picture) rect(x, y, width, height int, color drawing.Color) {
	p.SetFillColor(color)
	p.MoveTo(x, y)
	p.LineTo(x+width, y)
	p.LineTo(x+width, y+height)
	p.LineTo(x, y+height)
	p.Close()
	p.Fill()
}

// text writes a text and returns its width; y is that of the line it stands on.
func (p *picture) text(text string, x, y int, size float64, color drawing.Color) int {
	p.SetFontSize(size)
	p.SetFontColor(color)
	p.Text(text, x, y)
	return p.MeasureText(text).Width()
}

// stroke draws a line that is so many pixels wide.
func (p *picture) stroke(width float64, color drawing.Color, points ...image.Point) {
	p.SetStrokeWidth(width)
	p.SetStrokeColor(color)
	for i, at := range points {
		if i == 0 {
			p.MoveTo(at.X, at.Y)
		} else {
			p.LineTo(at.X, at.Y)
		}
	}
	p.Stroke()
}

func (p *picture) panel(panel boards.Panel, lines []line, x, y, width int) {
	p.rect(x, y, width, heightOf([]boards.Panel{panel}), panelColor)
	p.text(panel.Title, x+gap, y+14, 11, textColor)
	if panel.Kind == boards.Stat {
		number, color := stat(panel, lines)
		p.rect(x, y+titleHeight, width, statHeight-titleHeight, color)
		p.SetFontSize(24)
		at := x + (width-p.MeasureText(number).Width())/2
		p.text(number, at, y+titleHeight+35, 24, panelColor)
		return
	}
	lines = busiest(lines)
	p.chart(panel.Unit, lines, image.Rect(x+axisWidth, y+titleHeight+gap, x+width-2*gap, y+graphHeight-2*legendLine-axisHeight))
	p.legend(lines, x+gap, y+graphHeight-legendLine-gap, x+width-gap)
}

// stat is the last number of a panel, and the colour of its threshold.
func stat(panel boards.Panel, lines []line) (number string, color drawing.Color) {
	if len(lines) == 0 {
		return "No data", noDataColor
	}
	value := lines[0].samples[len(lines[0].samples)-1].Value
	color = greenColor
	switch {
	case panel.Red > 0 && value >= panel.Red:
		color = redColor
	case panel.Orange > 0 && value >= panel.Orange:
		color = orangeColor
	}
	return format(panel.Unit, value), color
}

// chart draws lines over the time, from 0 up, those that move most above the others.
func (p *picture) chart(unit string, lines []line, in image.Rectangle) {
	top := 0.0
	for _, l := range lines {
		for _, part := range unbroken(l.samples) {
			for _, s := range part {
				top = max(top, s.Value)
			}
		}
	}
	if top == 0 {
		top = 1
	}
	for i := range ticks + 1 {
		y := in.Max.Y - i*in.Dy()/ticks
		p.stroke(0.5, gridColor, image.Pt(in.Min.X, y), image.Pt(in.Max.X, y))
		p.text(format(unit, top*float64(i)/ticks), in.Min.X-axisWidth+gap, y+4, 9, dimColor)
	}
	p.text(p.from.Format(time.TimeOnly), in.Min.X, in.Max.Y+axisHeight-3, 9, dimColor)
	p.text(p.to.Format(time.TimeOnly), in.Max.X-timeWidth, in.Max.Y+axisHeight-3, 9, dimColor)
	for i := len(lines) - 1; i >= 0; i-- {
		for _, part := range unbroken(lines[i].samples) {
			var points []image.Point
			for _, s := range part {
				at := float64(s.At.Sub(p.from)) / float64(p.to.Sub(p.from))
				points = append(points, image.Pt(in.Min.X+int(at*float64(in.Dx())), in.Max.Y-int(max(0, s.Value)/top*float64(in.Dy()))))
			}
			p.stroke(2, lineColor(i), points...)
		}
	}
}

// legend names the lines, as many as there is room for in two rows.
func (p *picture) legend(lines []line, left, y, right int) {
	x, rows := left, 1
	for i, l := range lines {
		p.SetFontSize(9)
		need := 16 + p.MeasureText(l.name).Width() + 10
		if x+need > right {
			if rows++; rows > 2 {
				return
			}
			x, y = left, y+legendLine
		}
		p.rect(x, y-4, 12, 3, lineColor(i))
		p.text(l.name, x+16, y, 9, textColor)
		x += need
	}
}
