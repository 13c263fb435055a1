// Command image writes a container image of one layer, as the archive that `ctr images import` reads, from files of this
// machine: no daemon, no root. The same files make the same bytes.
//
//	image NAME:TAG FILE.tar ENTRYPOINT ENTRY...
//
// ENTRYPOINT is one path, or empty; an ENTRY is DESTINATION=FILE, or DESTINATION@TARGET for a symbolic link.
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
)

type object = map[string]any

func main() {
	if len(os.Args) < 4 {
		fail(fmt.Errorf("usage: image NAME:TAG FILE.tar ENTRYPOINT ENTRY..."))
	}
	layer, err := makeLayer(os.Args[4:])
	if err != nil {
		fail(err)
	}
	archive, err := makeArchive(os.Args[1], os.Args[3], layer)
	if err != nil {
		fail(err)
	}
	if err := os.WriteFile(os.Args[2], archive, 0o644); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "image:", err)
	os.Exit(1)
}

func makeLayer(entries []string) ([]byte, error) {
	var layer bytes.Buffer
	writer := tar.NewWriter(&layer)
	made := map[string]bool{".": true, "/": true}
	if err := makeFolders(writer, made, "tmp", 0o1777); err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if err := makeEntry(writer, made, entry); err != nil {
			return nil, fmt.Errorf("%s: %w", entry, err)
		}
	}
	err := writer.Close()
	return layer.Bytes(), err
}

// makeFolders makes a folder and those above it, once.
func makeFolders(writer *tar.Writer, made map[string]bool, folder string, mode int64) error {
	if made[folder] {
		return nil
	}
	made[folder] = true
	if err := makeFolders(writer, made, path.Dir(folder), 0o755); err != nil {
		return err
	}
	return writer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: mode})
}

func makeEntry(writer *tar.Writer, made map[string]bool, entry string) error {
	header, body := &tar.Header{}, []byte{}
	if destination, target, found := strings.Cut(entry, "@"); found {
		header = &tar.Header{Typeflag: tar.TypeSymlink, Name: destination, Linkname: target, Mode: 0o777}
	} else if destination, source, found := strings.Cut(entry, "="); found {
		about, err := os.Stat(source)
		if err != nil {
			return err
		}
		if body, err = os.ReadFile(source); err != nil {
			return err
		}
		header = &tar.Header{Typeflag: tar.TypeReg, Name: destination, Mode: int64(about.Mode().Perm()), Size: int64(len(body))}
	} else {
		return fmt.Errorf("neither DESTINATION=FILE nor DESTINATION@TARGET")
	}
	header.Name = strings.Trim(header.Name, "/")
	if err := makeFolders(writer, made, path.Dir(header.Name), 0o755); err != nil {
		return err
	}
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	_, err := writer.Write(body)
	return err
}

func makeArchive(name, entrypoint string, layer []byte) ([]byte, error) {
	settings := object{"Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}}
	if entrypoint != "" {
		settings["Entrypoint"] = []string{entrypoint}
	}
	config, err := json.Marshal(object{"architecture": runtime.GOARCH, "os": "linux", "config": settings,
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}}})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]object{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, file := range []struct {
		name string
		body []byte
	}{{"config.json", config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := writer.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.body))}); err != nil {
			return nil, err
		}
		if _, err := writer.Write(file.body); err != nil {
			return nil, err
		}
	}
	err = writer.Close()
	return archive.Bytes(), err
}
