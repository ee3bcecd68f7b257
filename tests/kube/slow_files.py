#!/usr/bin/env python3
"""Serves a folder over HTTP with ranges, slowly: slow_files.py ADDRESS PORT FOLDER BYTES_PER_SECOND. Each request is a line of its log."""
import http.server
import os
import sys
import time

address, port, folder, rate = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])


class Files(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = os.path.join(folder, os.path.normpath(self.path).lstrip("/"))
        if not os.path.isfile(path):
            self.send_error(404)
            return
        size, first = os.path.getsize(path), 0
        wanted = self.headers.get("Range", "")
        print("GET", self.path, wanted or "-", flush=True)
        if wanted.startswith("bytes="):
            first = int(wanted[6:].split("-")[0])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{size - 1}/{size}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(size - first))
        self.end_headers()
        with open(path, "rb") as file:
            file.seek(first)
            while chunk := file.read(rate // 20):
                self.wfile.write(chunk)
                time.sleep(0.05)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer((address, port), Files).serve_forever()
