"""MCP server over Qdrant's client in its local mode, what `mcp-server-qdrant` is made of, with an embedder that needs
no hub: the baseline of `rag_ingest` and `rag_query`.

usage: rag_server.py MODEL_FOLDER STORE

STORE is a folder, or ":memory:". A file's sections, from heading to heading, are its passages.
"""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from model2vec import StaticModel
from qdrant_client import QdrantClient, models

BATCH = 64

model = StaticModel.from_pretrained(sys.argv[1])
store = sys.argv[2]
client = QdrantClient(store) if store == ":memory:" else QdrantClient(path=store)
server = MCPServer("rag-baseline")


def passages(folder: Path):
    """Source and text of each section, and the text whose vector it has."""
    for file in sorted(folder.rglob("*.md")):
        source = str(file.relative_to(folder))
        for part in ("\n" + file.read_text()).split("\n# ")[1:]:
            text = "# " + part.strip()
            yield source, text, f"{source}\n{part.partition(chr(10))[0]}\n{text}"


@server.tool()
def ingest(folder: str, collection: str) -> dict[str, object]:
    """Ingest a folder's Markdown anew."""
    if client.collection_exists(collection):
        client.delete_collection(collection)
    size = models.VectorParams(size=model.dim, distance=models.Distance.COSINE)
    client.create_collection(collection, vectors_config=size)
    found = list(passages(Path(folder)))
    for at in range(0, len(found), BATCH):
        batch = found[at : at + BATCH]
        vectors = model.encode([embedded for _, _, embedded in batch])
        points = [
            models.PointStruct(id=at + nth, vector=vector.tolist(), payload={"source": source, "text": text})
            for nth, ((source, text, _), vector) in enumerate(zip(batch, vectors))
        ]
        client.upsert(collection, points)
    return {"chunks": client.count(collection).count}


@server.tool()
def find(question: str, collection: str) -> dict[str, object]:
    """Find the passages that are most similar to a question."""
    vector = model.encode(question).tolist()
    hits = client.query_points(collection, query=vector, limit=5).points
    return {"results": [hit.payload | {"score": hit.score} for hit in hits]}


server.run("stdio")
