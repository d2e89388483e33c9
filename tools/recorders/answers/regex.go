package main

import (
	"encoding/json"
	"regexp"
)

type regexLine struct {
	Pattern string   `json:"pattern"`
	Text    string   `json:"text"`
	Error   *string  `json:"error"`
	Found   []string `json:"found"`
}

// regexAnswer asks Go's own regexp, which CEL's matches() uses.
func regexAnswer(question []byte) ([]byte, error) {
	var line regexLine
	if err := json.Unmarshal(question, &line); err != nil {
		return nil, err
	}
	line.Error, line.Found = nil, nil
	pattern, err := regexp.Compile(line.Pattern)
	if err != nil {
		text := err.Error()
		line.Error = &text
		return encode(line), nil
	}
	line.Found = pattern.FindAllString(line.Text, -1)
	return encode(line), nil
}
