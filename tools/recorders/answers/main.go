// Answers questions with the code of a published Kubernetes: one JSON line in, one JSON line out.
//
// The questions come from files that a recording already has, so that every version is asked the same. A question whose
// answer differs between two tries (Go's map order shows through in places) is left out, and named on standard error.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	schedulerfeatures "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"

	_ "k8s.io/kubernetes/pkg/features" // registers the gates
)

const longestLine = 64 << 20

var tries = flag.Int("tries", 3, "how often each question is asked")

// answer returns the whole line to write, or nil to leave the question out.
type answer func(question []byte) ([]byte, error)

func main() {
	kind := flag.String("kind", "", "allocator, cel or regex")
	version := flag.String("version", "", "the Kubernetes version to write into the lines")
	gates := flag.String("feature-gates", "", "as for kube-scheduler")
	flag.Parse()
	if err := utilfeature.DefaultMutableFeatureGate.Set(*gates); err != nil {
		fail(err)
	}
	features := schedulerfeatures.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	askers := map[string]func() answer{
		"allocator": func() answer { return allocatorAnswers(features, *version) },
		"cel":       func() answer { return celAnswers(features, *version) },
		"regex":     func() answer { return regexAnswer },
	}
	make, known := askers[*kind]
	if !known {
		fail(fmt.Errorf("unknown kind %q: use allocator, cel or regex", *kind))
	}
	if err := answerAll(os.Stdin, os.Stdout, make()); err != nil {
		fail(err)
	}
}

func answerAll(in io.Reader, out io.Writer, ask answer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestLine)
	buffered := bufio.NewWriter(out)
	for number := 1; lines.Scan(); number++ {
		question := bytes.Clone(lines.Bytes())
		line, err := ask(question)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if line == nil {
			fmt.Fprintf(os.Stderr, "left out line %d: its answer is not always the same\n", number)
			continue
		}
		buffered.Write(line)
		buffered.WriteByte('\n')
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return buffered.Flush()
}

// encode writes JSON as kubectl does: < and > stay readable.
func encode(value any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		fail(err)
	}
	return bytes.TrimRight(text.Bytes(), "\n")
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
