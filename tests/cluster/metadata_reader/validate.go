//go:build validation

package main

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

func init() {
	decode = func(decoder *json.Decoder, into runtime.Object) error {
		var invalid error
		option := devicemetadata.DecodeMetadataWithValidationResult(&invalid)
		if err := devicemetadata.DecodeMetadataFromStream(decoder, into, option); err != nil {
			return err
		}
		return invalid
	}
}
