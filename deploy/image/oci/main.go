// Command oci puts a program into an image: an OCI layout with an index over platforms. What it writes depends on what it is
// given and on nothing else, so two runs over the same programs have the same digest.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const user = "65532"

func main() {
	log.SetFlags(0)
	log.SetPrefix("oci: ")
	root := flag.String("root", "", "a folder of files that a program expects to find of its machine")
	out := flag.String("out", "", "the folder of the layout; it must not exist")
	name := flag.String("name", "", "the image's name in the layout, as windlass:0.1.0")
	version := flag.String("version", "", "the program's version")
	revision := flag.String("revision", "", "the commit that it was built from")
	flag.Parse()
	if err := write(*root, *out, *name, *version, *revision, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

// write makes the layout; each of programs is ARCHITECTURE=FILE.
func write(root, out, name, version, revision string, programs []string) error {
	if root == "" || out == "" || name == "" || version == "" || len(programs) == 0 {
		return fmt.Errorf("usage: oci -root FOLDER -out FOLDER -name NAME:TAG -version VERSION [-revision COMMIT] ARCHITECTURE=FILE …")
	}
	if _, err := os.Stat(out); err == nil {
		return fmt.Errorf("%s exists; remove it, or name another", out)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, program := range programs {
		architecture, file, found := strings.Cut(program, "=")
		if !found {
			return fmt.Errorf("%s: write ARCHITECTURE=FILE", program)
		}
		image, err := imageOf(root, architecture, file, version, revision)
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		platform := &v1.Platform{OS: "linux", Architecture: architecture}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	path, err := layout.Write(out, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})
	if err := path.AppendIndex(index, named); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}

func imageOf(root, architecture, file, version, revision string) (v1.Image, error) {
	files, err := layerOf(root, file)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.AppendLayers(image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", architecture
	labels := map[string]string{
		"org.opencontainers.image.title":    "windlass",
		"org.opencontainers.image.version":  version,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	if revision != "" {
		labels["org.opencontainers.image.revision"] = revision
	}
	config.Config = v1.Config{User: user + ":" + user, Entrypoint: []string{"/windlass"}, WorkingDir: "/", Labels: labels}
	return mutate.ConfigFile(image, config)
}

// layerOf is the image's only layer, all of it root's, of no time. There is no shell in it, and nothing to write to.
func layerOf(root, program string) ([]byte, error) {
	var files bytes.Buffer
	out := tar.NewWriter(&files)
	add := func(name string, mode int64, kind byte, text []byte) error {
		header := &tar.Header{Name: name, Mode: mode, Typeflag: kind, Size: int64(len(text)), Format: tar.FormatUSTAR}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		_, err := out.Write(text)
		return err
	}
	// In the order of their names.
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return add(filepath.ToSlash(name)+"/", 0o755, tar.TypeDir, nil)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return add(filepath.ToSlash(name), 0o644, tar.TypeReg, text)
	})
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	if err := add("windlass", 0o755, tar.TypeReg, text); err != nil {
		return nil, err
	}
	return files.Bytes(), out.Close()
}
