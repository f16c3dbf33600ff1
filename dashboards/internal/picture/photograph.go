//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
)

// photograph lets Chromium show a page and writes what it shows as a picture.
func photograph(ctx context.Context, dir, page, out string, height int) error {
	chromium, err := browser()
	if err != nil {
		return err
	}
	shot := filepath.Join(dir, "shot.png")
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--user-data-dir="+filepath.Join(dir, "chromium"), fmt.Sprintf("--window-size=%d,%d", pageWidth, height),
		"--screenshot="+shot, "file://"+page)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("chromium: %w\n%s", err, text)
	}
	return shrink(shot, out)
}

func browser() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium in PATH: install it (Debian and Ubuntu: apt-get install chromium)")
}

// shrink writes a picture anew with the 256 colours that it has most of. A page of
// lines and letters looks the same and takes a third of the room.
func shrink(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	full, err := png.Decode(in)
	if err != nil {
		return err
	}
	small := image.NewPaletted(full.Bounds(), commonest(full))
	draw.Draw(small, small.Bounds(), full, full.Bounds().Min, draw.Src)
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	enc := png.Encoder{CompressionLevel: png.BestCompression}
	return errors.Join(enc.Encode(out, small), out.Close())
}

// commonest are the colours that cover most of a picture.
func commonest(m image.Image) color.Palette {
	const most = 256
	count := make(map[color.RGBA]int)
	b := m.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[color.RGBAModel.Convert(m.At(x, y)).(color.RGBA)]++
		}
	}
	palette := make(color.Palette, 0, most)
	for len(palette) < most && len(count) > 0 {
		var top color.RGBA
		n := -1
		for c, k := range count {
			if k > n {
				top, n = c, k
			}
		}
		palette = append(palette, top)
		delete(count, top)
	}
	return palette
}
