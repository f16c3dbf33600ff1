package nonce

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestRequestsResultsAndEventsComeBackAsTheyWere fills every field there is, so that one which is
// forgotten in the codec is missing here.
func TestRequestsResultsAndEventsComeBackAsTheyWere(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		var q, q2 Request
		fill(rng, reflect.ValueOf(&q).Elem())
		q.Count, q.Signer, q.List.Signer = min(q.Count, MaxCount), "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb", ""
		if q.Kind == KindList {
			q.List.Signer = q.Signer
		} else {
			q.List = ListQuery{}
		}
		q.Nonce = max(-1, q.Nonce)
		both(t, &q, &q2, AppendRequest, ReadRequest)
		var r, r2 Result
		fill(rng, reflect.ValueOf(&r).Elem())
		r.Err = nil
		both(t, &r, &r2, AppendResult, ReadResult)
		var e, e2 Event
		fill(rng, reflect.ValueOf(&e).Elem())
		e.Signer = "s"
		both(t, &e, &e2, AppendEvent, ReadEvent)
	}
}

// TestWhatBreaksARuleIsWrittenAndNotRead: what stands before it in a message must not be lost.
func TestWhatBreaksARuleIsWrittenAndNotRead(t *testing.T) {
	q := Request{Kind: KindAllocate, Signer: "s", Count: MaxCount + 1}
	r := Result{Err: &ConflictError{Nonce: -2}}
	lowest := Result{Err: &HoldLimitError{Window: true, Lowest: -1}}
	e := Event{Type: EventUsed, Signer: "s", Gap: &Gap{Kind: WatchGap, Nonce: -1}}
	wrote(t, &q, AppendRequest, ReadRequest)
	wrote(t, &r, AppendResult, ReadResult)
	wrote(t, &lowest, AppendResult, ReadResult)
	wrote(t, &e, AppendEvent, ReadEvent)
}

func wrote[T any](t *testing.T, v *T, write func([]byte, *T) []byte, read func([]byte, *T) ([]byte, error)) {
	t.Helper()
	b, there := bytes.CutPrefix(write([]byte("before"), v), []byte("before"))
	if _, err := read(b, new(T)); !there || len(b) == 0 || !errors.Is(err, ErrCodec) {
		t.Errorf("%+v is written as %q behind what was there: %t; it is read with %v", *v, b, there, err)
	}
}

// both writes a value, reads it, and reads what is only a part of it.
func both[T any](t *testing.T, v, back *T, write func([]byte, *T) []byte, read func([]byte, *T) ([]byte, error)) {
	t.Helper()
	b := write([]byte("before"), v)[len("before"):]
	rest, err := read(append(b, "behind"...), back)
	if err != nil || string(rest) != "behind" || !reflect.DeepEqual(v, back) {
		t.Fatalf("%x\ncame back as %+v, %v, and %q is left;\nwant %+v", b, back, err, rest, v)
	}
	for n := 0; n < len(b); n += 1 + n/64 {
		if _, err := read(b[:n], new(T)); !errors.Is(err, ErrCodec) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
}

// fill gives every field a value that can be, half of those that may be empty none.
func fill(rng *rand.Rand, v reflect.Value) {
	switch of := v.Addr().Interface().(type) {
	case *time.Time:
		*of = time.UnixMilli(1 + rng.Int64N(1<<41))
		return
	case *TxHash:
		of[rng.IntN(32)] = byte(1 + rng.IntN(255))
		return
	case *TxHashes:
		*of = TxHashes(strings.Repeat("h", 32*rng.IntN(MaxHashes+1)))
		return
	case *Kind:
		*of = 1 + Kind(rng.IntN(int(KindRepair)))
		return
	case *Status:
		*of = Held + Status(rng.IntN(3))
		return
	case *EventType:
		*of = 1 + EventType(rng.IntN(len(eventWords)-1))
		return
	case *WatchKind:
		*of = WatchGap + WatchKind(rng.IntN(3))
		return
	case *error:
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.String:
		v.SetString(strings.Repeat("é", rng.IntN(40)))
	case reflect.Int, reflect.Int64:
		v.SetInt(rng.Int64() >> rng.IntN(63))
	case reflect.Uint64:
		v.SetUint(rng.Uint64())
	case reflect.Pointer:
		if rng.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rng, v.Elem())
		}
	case reflect.Slice:
		for range rng.IntN(20) {
			x := reflect.New(v.Type().Elem()).Elem()
			fill(rng, x)
			v.Set(reflect.Append(v, x))
		}
	case reflect.Map:
		if rng.IntN(2) == 0 {
			v.Set(reflect.ValueOf(map[Principal]string{Principal(1 + rng.Uint64N(9)): "a", 10: "b"}))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(rng, v.Field(i))
		}
	default:
		panic(fmt.Sprintf("a field of type %v", v.Type()))
	}
}

// TestErrorsTravelAsTheySay: what is one of ours is the same on the other side, with its data; of
// what is not, nobody knows what happened.
func TestErrorsTravelAsTheySay(t *testing.T) {
	long := strings.Repeat("é", 600)
	for _, c := range []struct{ err, want error }{
		{ErrBusy, nil}, {ErrFenced, nil}, {ErrNotFound, nil}, {ErrNotHolder, nil}, {ErrDraining, nil}, {ErrGone, nil}, {ErrNoChain, nil},
		{ErrNewSigner, nil}, {ErrInternal, nil}, {ErrForwardBusy, nil}, {ErrEventsBusy, nil}, {ErrPeerAway, nil},
		{fmt.Errorf("wrapped: %w", ErrFenced), ErrFenced},
		{&NotOwnerError{Node: "b", URL: "ws://b"}, nil},
		{&NotOwnerError{Node: long}, &NotOwnerError{Node: long[:maxCodecText]}},
		{&HoldLimitError{Limit: 5}, nil}, {&HoldLimitError{Limit: 6, OfPrincipal: true}, nil}, {&HoldLimitError{Limit: 16, Window: true, Lowest: 4}, nil},
		{&InvalidError{Field: "holdMs", Rule: "must be 1 to 2"}, nil},
		{&ConflictError{Sentence: "so it is", Nonce: 4, Status: Held, Attempt: 2, HeldUntil: time.UnixMilli(7), Unknown: true, TxHash: TxHash{1}, Cause: CauseReplacement}, nil},
		{&ConflictError{Sentence: "so it is", Nonce: -1, Holds: []HoldState{{Nonce: 4, Attempt: 2, Status: Held, Unknown: true}, {Nonce: 5, Attempt: 1, Status: Consumed}}}, nil},
		{&UnavailableError{Outcome: NotSent, Err: Told("as I say")}, nil},
		{&UnavailableError{Outcome: Unknown, Err: Told("as I say")}, nil},
		{&UnavailableError{Outcome: Aborted, Err: &StoreError{Outcome: Aborted}}, &UnavailableError{Outcome: NotSent, Err: Told("the store refused it")}},
		{&UnavailableError{Outcome: NotSent, Err: &PeerAwayError{Node: "b"}}, &UnavailableError{Outcome: NotSent, Err: Told("node b, which owns the signer, is not reached from here")}},
		{errors.New("boom"), &UnavailableError{Outcome: Unknown, Err: errStrange}},
	} {
		if c.want == nil {
			c.want = c.err
		}
		var r Result
		rest, err := ReadResult(AppendResult(nil, &Result{Err: c.err}), &r)
		if err != nil || len(rest) > 0 || !reflect.DeepEqual(r, Result{Err: c.want}) {
			t.Errorf("%#v came as %#v, %v, and %x is left", c.err, r.Err, err, rest)
		}
	}
}

// FuzzCodec: whatever comes is refused, or is written again into what reads alike.
func FuzzCodec(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 8 {
		var q Request
		var r Result
		var e Event
		fill(rng, reflect.ValueOf(&q).Elem())
		fill(rng, reflect.ValueOf(&r).Elem())
		fill(rng, reflect.ValueOf(&e).Elem())
		q.Signer, e.Signer = "s", "s"
		f.Add(AppendRequest(nil, &q))
		f.Add(AppendResult(nil, &r))
		f.Add(AppendEvent(nil, &e))
	}
	f.Add(AppendResult(nil, &Result{Err: &ConflictError{Sentence: "x", Nonce: -1, Holds: []HoldState{{Status: Held}}}}))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		again(t, data, AppendRequest, ReadRequest)
		again(t, data, AppendResult, ReadResult)
		again(t, data, AppendEvent, ReadEvent)
	})
}

func again[T any](t *testing.T, data []byte, write func([]byte, *T) []byte, read func([]byte, *T) ([]byte, error)) {
	t.Helper()
	var v, v2 T
	rest, err := read(data, &v)
	if err != nil {
		if !errors.Is(err, ErrCodec) || rest != nil {
			t.Fatalf("refused as %v, and %x is left", err, rest)
		}
		return
	}
	if most := 64*len(data) + 64; held(reflect.ValueOf(&v).Elem()) > most {
		t.Errorf("%d bytes are more than %d in memory", len(data), most)
	}
	b := write(nil, &v)
	if rest, err := read(b, &v2); err != nil || len(rest) > 0 || !reflect.DeepEqual(v, v2) || !bytes.Equal(b, write(nil, &v2)) {
		t.Fatalf("%+v\ncame back as %+v, %v, and %x is left", v, v2, err, rest)
	}
}

// held is about how many bytes a value has beside itself.
func held(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer:
		if !v.IsNil() {
			return int(v.Type().Elem().Size()) + held(v.Elem())
		}
	case reflect.Slice:
		n = v.Cap() * int(v.Type().Elem().Size())
		for i := range v.Len() {
			n += held(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += held(v.Field(i))
		}
	case reflect.Interface:
		if !v.IsNil() {
			return held(v.Elem())
		}
	}
	return n
}
