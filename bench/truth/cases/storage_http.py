"""Samples come from a web server that takes AMOUNT milliseconds to answer (a local one).

truth: io storage
line: urlopen
remedies: fetch_threads loader_workers prefetch cache_samples
amounts: 1 3 20
"""

import http.server
import multiprocessing
import sys
import time
import urllib.request

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

AMOUNT = float(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(AMOUNT / 1000)
        values = (
            np.random.default_rng([SEED, int(self.path[1:])]).normal(size=256).astype(np.float32)
        )
        self.send_response(200)
        self.end_headers()
        self.wfile.write(values.tobytes())

    def log_message(self, *args):
        pass


class Remote(Dataset):
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def __len__(self):
        return 200

    def __getitem__(self, index):
        with urllib.request.urlopen(f"{self.url}/{index}") as answer:
            data = np.frombuffer(answer.read(), dtype=np.float32)
        return torch.from_numpy(data.copy()), index % 10


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    serving = multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True)
    serving.start()
    torch.manual_seed(SEED)
    model = nn.Sequential(
        nn.Linear(256, 3072), nn.ReLU(), nn.Linear(3072, 3072), nn.ReLU(), nn.Linear(3072, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(3):
        for x, y in DataLoader(Remote(server.server_port), batch_size=4, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    serving.kill()
