package wire

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"noncegate/test/lab/expect"
)

const signer = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"

// decoders is every decoder of params, by its method.
var decoders = map[string]func([]byte) (any, *Error){
	MethodAllocate:       erase(Params[AllocateParams]()),
	MethodMarkUsed:       erase(Params[MarkUsedParams]()),
	MethodMarkRecyclable: erase(Params[MarkRecyclableParams]()),
	MethodMarkSigned:     erase(Params[MarkSignedParams]()),
	MethodExtend:         erase(Params[ExtendParams]()),
	MethodRepair:         erase(Params[RepairParams]()),
	MethodStatus:         erase(Params[StatusParams]()),
	MethodList:           erase(Params[ListParams]()),
	MethodSetFloor:       erase(Params[SetFloorParams]()),
	MethodSubscribe:      erase(DecodeSubscribe),
	MethodUnsubscribe:    erase(Params[UnsubscribeParams]()),
	MethodInfo:           erase(Params[NoParams]()),
}

func erase[T any](decode func([]byte) (T, *Error)) func([]byte) (any, *Error) {
	return func(params []byte) (any, *Error) { return decode(params) }
}

// pairs reads a file of testdata: a line that begins with in, and the one behind it.
func pairs(t *testing.T, file string, least int) (all [][2]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	expect.Must(t, err)
	first := ""
	for line := range strings.Lines(string(text)) {
		head, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if strings.HasPrefix(rest, `q"`) {
			if rest, err = strconv.Unquote(rest[1:]); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		switch {
		case head == "#":
		case first == "":
			first = head + " " + rest
		default:
			all, first = append(all, [2]string{first, head + " " + rest}), ""
		}
	}
	if len(all) < least {
		t.Fatalf("only %d cases in %s", len(all), file)
	}
	return all
}

func TestParamsAreTakenOrRefusedWithFieldAndRule(t *testing.T) {
	for _, c := range pairs(t, "params.txt", 190) {
		method, params, _ := strings.Cut(c[0], " ")
		decoded, err := decoders[method]([]byte(params))
		if want, taken := strings.CutPrefix(c[1], "= "); taken {
			if got, merr := Marshal(decoded); err != nil || merr != nil || string(got) != want {
				t.Errorf("%s:\n got %s, %v, %v\nwant %s", c[0], got, err, merr, want)
			}
			continue
		}
		want := strings.TrimPrefix(c[1], "! ")
		if err == nil {
			t.Errorf("%s: accepted, want %q", c[0], want)
			continue
		}
		if err.Code != CodeInvalidParams || err.Data.Reason != "invalid_params" || err.Message != "invalid_params: "+want {
			t.Errorf("%s:\n got %d %s %q\nwant %q", c[0], err.Code, err.Data.Reason, err.Message, want)
		}
		if want, _, _ := strings.Cut(want, ": "); err.Data.Field != want {
			t.Errorf("%s: got field %q, want %q", c[0], err.Data.Field, want)
		}
	}
}
