package api

import "net/http"

func renderDocs([]byte) ([]byte, error) { return []byte("<!doctype html>"), nil }

func (e *Edge) startPage(w http.ResponseWriter, a rootAnswer) { e.writePage(w, []byte(a.Version)) }
