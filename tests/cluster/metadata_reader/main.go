// Reads a driver's device metadata files with the library that Go programs in pods use, and prints what it understood.
//
//	reader resourceclaims|resourceclaimtemplates NAME REQUEST
//
// Three ways: by driver, by request from all drivers, and every object of the file alone, so that each version the
// library knows is decoded and not only the first. Versions that it does not know are listed as such.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/api/metadata/install"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

const driver = "dra.net"

var scheme = install.NewScheme()

// decode is replaced by one that validates, where the library can (validate.go).
var decode = func(decoder *json.Decoder, into runtime.Object) error {
	return devicemetadata.DecodeMetadataFromStream(decoder, into)
}

type answer struct {
	Decoded   []*v1alpha1.DeviceMetadata `json:"decoded"`
	Versions  []string                   `json:"versions"`
	Unknown   []string                   `json:"unknown"`
	ByDriver  int                        `json:"devicesByDriver"`
	ByRequest int                        `json:"devicesByRequest"`
}

func main() {
	said, err := read(os.Args[1], os.Args[2], os.Args[3])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(said)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(kind, name, request string) (*answer, error) {
	byDriver, byRequest := devicemetadata.ReadResourceClaimMetadataWithDriverName, devicemetadata.ReadResourceClaimMetadata
	path := metadata.ResourceClaimFilePath(driver, name, request)
	if kind == metadata.ResourceClaimTemplatesSubDir {
		byDriver = devicemetadata.ReadResourceClaimTemplateMetadataWithDriverName
		byRequest = devicemetadata.ReadResourceClaimTemplateMetadata
		path = metadata.ResourceClaimTemplateFilePath(driver, name, request)
	}
	one, err := byDriver(driver, name, request)
	if err != nil {
		return nil, err
	}
	all, err := byRequest(name, request)
	if err != nil {
		return nil, err
	}
	said := &answer{ByDriver: devices(one), ByRequest: devices(all)}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return said, each(content, said)
}

// each decodes every object of the stream as if it were the only one.
func each(content []byte, said *answer) error {
	stream := json.NewDecoder(bytes.NewReader(content))
	for {
		var raw json.RawMessage
		if err := stream.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var head struct{ APIVersion string }
		if err := json.Unmarshal(raw, &head); err != nil {
			return err
		}
		var found v1alpha1.DeviceMetadata
		err := decode(json.NewDecoder(bytes.NewReader(raw)), &found)
		if err != nil && !known(head.APIVersion) {
			said.Unknown = append(said.Unknown, head.APIVersion)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", head.APIVersion, err)
		}
		said.Versions = append(said.Versions, head.APIVersion)
		said.Decoded = append(said.Decoded, &found)
	}
}

func devices(found *metadata.DeviceMetadata) int {
	count := 0
	for _, request := range found.Requests {
		count += len(request.Devices)
	}
	return count
}

// known says whether the library knows a version of the format.
func known(version string) bool {
	parsed, err := schema.ParseGroupVersion(version)
	return err == nil && scheme.IsVersionRegistered(parsed)
}
