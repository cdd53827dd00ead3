// Places boxes in layers, beside the page's own thread: 500 boxes take some tenths of a second.

import { Graph, layout } from "@dagrejs/dagre";

onmessage = ({ data: { number, boxes, edges, across } }) => {
  const graph = new Graph({ multigraph: false });
  graph.setGraph({ rankdir: across ? "LR" : "TB", nodesep: 14, ranksep: 60, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id, width, height } of boxes) graph.setNode(id, { width, height });
  for (const [from, to] of edges) graph.setEdge(from, to);
  layout(graph);
  const places = boxes.map(({ id }) => {
    const { x, y } = graph.node(id);
    return [id, x, y];
  });
  const lines = edges.map(([from, to]) => [from, to, graph.edge(from, to).points.map(({ x, y }) => [x, y])]);
  const { width, height } = graph.graph();
  postMessage({ number, places, lines, width, height });
};
