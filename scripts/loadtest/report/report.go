// Package report judges a run on criteria and shows it: as text for people, as
// JSON for machines, and as one HTML page that needs no network and no script.
//
// What it promises: no report divides by zero or holds a figure that is no
// number; a run in which nothing was acknowledged is never a success; what came
// from outside (addresses, reasons, names of counters) is shown and never
// obeyed, neither by a terminal nor by a browser. What it does not: it measures
// nothing, and says of a run only what the run says of itself.
//
// Nothing here starts a goroutine or keeps state; all functions may be called at
// the same time, Judge for different runs.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"reflect"

	"noncegate/scripts/loadtest/result"
)

// JSON writes the run as one indented JSON object: result.Run with "passed"
// added, which is Run.Passed.
func JSON(w io.Writer, run *result.Run) error {
	clean := finite(run)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(struct {
		*result.Run
		Passed bool `json:"passed"`
	}{clean, clean.Passed()})
	if err != nil {
		return fmt.Errorf("write JSON report: %w", err)
	}
	return nil
}

// finite is a copy of the run in which every figure that is no number is 0.
func finite(run *result.Run) *result.Run {
	return finiteValue(reflect.ValueOf(run)).Interface().(*result.Run)
}

// finiteValue copies what can hold a floating-point number, so that the caller's
// run stays as it is.
func finiteValue(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			out.SetFloat(0)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(finiteValue(v.Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() { // all but those inside time.Time
				out.Field(i).Set(finiteValue(v.Field(i)))
			}
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(finiteValue(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for key, value := range v.Seq2() {
				out.SetMapIndex(key, finiteValue(value))
			}
		}
	}
	return out
}

// share is part of whole, 0 where there is no whole.
func share(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// requests is how many requests were due in the measured time.
func requests(run *result.Run) int64 { return run.Acknowledged + unserved(run) }

// unserved is how many of them were not acknowledged, for whatever reason.
func unserved(run *result.Run) int64 { return run.Refusals() + run.Failed + run.Unsent }
