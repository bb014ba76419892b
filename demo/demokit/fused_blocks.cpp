// Fused fp32 pieces of the demo model for one training thread, each forward and backward: residual add with
// zero-centred RMS norm, SwiGLU, routed experts by counting sort.
// Checked against plain torch in tests/demo.
#include <torch/extension.h>

#include <cmath>
#include <cstring>
#include <vector>

using torch::Tensor;

Tensor demo_delta_forward(std::vector<Tensor> tensors);
std::vector<Tensor> demo_delta_backward(std::vector<Tensor> tensors, Tensor grad);

namespace {

constexpr float EPS = 1e-6f;

inline float sigmoid(float x) { return 1.f / (1.f + std::exp(-x)); }

// sum = x + y; normed = sum * rsqrt(mean(sum^2) + eps) * (1 + weight)
std::vector<Tensor> add_norm_forward(Tensor x, Tensor y, Tensor weight) {
  const int64_t H = x.size(-1), N = x.numel() / H;
  Tensor sum = torch::empty_like(x), normed = torch::empty_like(x);
  const float *px = x.data_ptr<float>(), *py = y.data_ptr<float>(), *w = weight.data_ptr<float>();
  float *ps = sum.data_ptr<float>(), *pn = normed.data_ptr<float>();
  for (int64_t n = 0; n < N; n++, px += H, py += H, ps += H, pn += H) {
    float square = 0.f;
    for (int64_t i = 0; i < H; i++) {
      ps[i] = px[i] + py[i];
      square += ps[i] * ps[i];
    }
    const float inv = 1.f / std::sqrt(square / H + EPS);
    for (int64_t i = 0; i < H; i++) pn[i] = ps[i] * inv * (1.f + w[i]);
  }
  return {sum, normed};
}

std::vector<Tensor> add_norm_backward(Tensor sum, Tensor weight, Tensor grad_sum, Tensor grad_normed) {
  const int64_t H = sum.size(-1), N = sum.numel() / H;
  Tensor grad = torch::empty_like(sum), grad_weight = torch::zeros_like(weight);
  const float *s = sum.data_ptr<float>(), *w = weight.data_ptr<float>();
  const float *gs = grad_sum.data_ptr<float>(), *gn = grad_normed.data_ptr<float>();
  float *g = grad.data_ptr<float>(), *dw = grad_weight.data_ptr<float>();
  for (int64_t n = 0; n < N; n++, s += H, gs += H, gn += H, g += H) {
    float square = 0.f, dot = 0.f;
    for (int64_t i = 0; i < H; i++) {
      square += s[i] * s[i];
      dot += gn[i] * (1.f + w[i]) * s[i];
    }
    const float inv = 1.f / std::sqrt(square / H + EPS);
    dot *= inv * inv * inv / H;
    for (int64_t i = 0; i < H; i++) {
      g[i] = gs[i] + inv * gn[i] * (1.f + w[i]) - s[i] * dot;
      dw[i] += gn[i] * s[i] * inv;
    }
  }
  return {grad, grad_weight};
}

void swiglu_rows(const float* in, float* out, int64_t rows, int64_t width) {
  for (int64_t n = 0; n < rows; n++, in += 2 * width, out += width)
    for (int64_t i = 0; i < width; i++) out[i] = in[i] * sigmoid(in[i]) * in[width + i];
}

void swiglu_rows_backward(const float* in, const float* grad, float* out, int64_t rows, int64_t width) {
  for (int64_t n = 0; n < rows; n++, in += 2 * width, grad += width, out += 2 * width)
    for (int64_t i = 0; i < width; i++) {
      const float sig = sigmoid(in[i]);
      out[i] = grad[i] * in[width + i] * sig * (1.f + in[i] * (1.f - sig));
      out[width + i] = grad[i] * in[i] * sig;
    }
}

Tensor swiglu_forward(Tensor in) {
  Tensor out = torch::empty({in.size(0), in.size(1) / 2}, in.options());
  swiglu_rows(in.data_ptr<float>(), out.data_ptr<float>(), in.size(0), out.size(1));
  return out;
}

Tensor swiglu_backward(Tensor in, Tensor grad) {
  Tensor out = torch::empty_like(in);
  swiglu_rows_backward(in.data_ptr<float>(), grad.data_ptr<float>(), out.data_ptr<float>(), in.size(0), grad.size(1));
  return out;
}

// Places of (token, choice) pairs ordered by expert; returns the order, offsets has experts + 1 entries.
std::vector<int64_t> by_expert(const Tensor& chosen, int64_t experts, std::vector<int64_t>& offsets) {
  const int64_t count = chosen.numel();
  const int64_t* e = chosen.data_ptr<int64_t>();
  offsets.assign(experts + 1, 0);
  for (int64_t i = 0; i < count; i++) offsets[e[i] + 1]++;
  for (int64_t x = 0; x < experts; x++) offsets[x + 1] += offsets[x];
  std::vector<int64_t> next(offsets.begin(), offsets.end() - 1), order(count);
  for (int64_t i = 0; i < count; i++) order[next[e[i]]++] = i;
  return order;
}

// x (N,H), chosen (N,k) int64, share (N,k), up (E,2I,H), down (E,H,I) -> out, rows, hidden, active, results
std::vector<Tensor> experts_forward(Tensor x, Tensor chosen, Tensor share, Tensor up, Tensor down) {
  const int64_t H = x.size(1), E = up.size(0), I = down.size(2), k = chosen.size(1), count = chosen.numel();
  std::vector<int64_t> offsets;
  const std::vector<int64_t> order = by_expert(chosen, E, offsets);
  Tensor rows = torch::empty({count, H}, x.options()), hidden = torch::empty({count, 2 * I}, x.options());
  Tensor active = torch::empty({count, I}, x.options()), results = torch::empty({count, H}, x.options());
  Tensor out = torch::zeros_like(x);
  const float *px = x.data_ptr<float>(), *ps = share.data_ptr<float>();
  float *pr = rows.data_ptr<float>(), *py = results.data_ptr<float>(), *po = out.data_ptr<float>();
  for (int64_t i = 0; i < count; i++) std::memcpy(pr + i * H, px + order[i] / k * H, sizeof(float) * H);
  for (int64_t e = 0; e < E; e++) {
    const int64_t from = offsets[e], n = offsets[e + 1] - from;
    if (n == 0) continue;
    Tensor h = hidden.narrow(0, from, n), a = active.narrow(0, from, n), y = results.narrow(0, from, n);
    at::mm_out(h, rows.narrow(0, from, n), up[e].t());
    swiglu_rows(h.data_ptr<float>(), a.data_ptr<float>(), n, I);
    at::mm_out(y, a, down[e].t());
  }
  for (int64_t i = 0; i < count; i++) {
    float* to = po + order[i] / k * H;
    const float w = ps[order[i]];
    for (int64_t c = 0; c < H; c++) to[c] += w * py[i * H + c];
  }
  return {out, rows, hidden, active, results};
}

// -> grad of x, share, up, down
std::vector<Tensor> experts_backward(std::vector<Tensor> saved, Tensor grad) {
  const Tensor &chosen = saved[0], &share = saved[1], &up = saved[2], &down = saved[3];
  const Tensor &rows = saved[4], &hidden = saved[5], &active = saved[6], &results = saved[7];
  const int64_t H = rows.size(1), E = up.size(0), I = down.size(2), k = chosen.size(1), count = chosen.numel();
  std::vector<int64_t> offsets;
  const std::vector<int64_t> order = by_expert(chosen, E, offsets);
  Tensor grad_rows = torch::empty_like(rows), grad_hidden = torch::empty_like(hidden);
  Tensor grad_active = torch::empty_like(active), grad_results = torch::empty_like(results);
  Tensor grad_x = torch::zeros({chosen.size(0), H}, rows.options()), grad_share = torch::empty_like(share);
  Tensor grad_up = torch::zeros_like(up), grad_down = torch::zeros_like(down);
  const float *pg = grad.data_ptr<float>(), *py = results.data_ptr<float>(), *ps = share.data_ptr<float>();
  float *pgy = grad_results.data_ptr<float>(), *pgs = grad_share.data_ptr<float>(), *pgx = grad_x.data_ptr<float>();
  for (int64_t i = 0; i < count; i++) {
    const float *g = pg + order[i] / k * H, w = ps[order[i]];
    float dot = 0.f;
    for (int64_t c = 0; c < H; c++) {
      dot += g[c] * py[i * H + c];
      pgy[i * H + c] = w * g[c];
    }
    pgs[order[i]] = dot;
  }
  for (int64_t e = 0; e < E; e++) {
    const int64_t from = offsets[e], n = offsets[e + 1] - from;
    if (n == 0) continue;
    Tensor gy = grad_results.narrow(0, from, n), ga = grad_active.narrow(0, from, n);
    Tensor gh = grad_hidden.narrow(0, from, n), gr = grad_rows.narrow(0, from, n);
    Tensor gu = grad_up[e], gd = grad_down[e];
    at::mm_out(ga, gy, down[e]);
    at::mm_out(gd, gy.t(), active.narrow(0, from, n));
    swiglu_rows_backward(hidden.narrow(0, from, n).data_ptr<float>(), ga.data_ptr<float>(), gh.data_ptr<float>(), n, I);
    at::mm_out(gr, gh, up[e]);
    at::mm_out(gu, gh.t(), rows.narrow(0, from, n));
  }
  const float* pgr = grad_rows.data_ptr<float>();
  for (int64_t i = 0; i < count; i++) {
    float* to = pgx + order[i] / k * H;
    for (int64_t c = 0; c < H; c++) to[c] += pgr[i * H + c];
  }
  return {grad_x, grad_share, grad_up, grad_down};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("delta_forward", &demo_delta_forward);
  m.def("delta_backward", &demo_delta_backward);
  m.def("add_norm_forward", &add_norm_forward);
  m.def("add_norm_backward", &add_norm_backward);
  m.def("swiglu_forward", &swiglu_forward);
  m.def("swiglu_backward", &swiglu_backward);
  m.def("experts_forward", &experts_forward);
  m.def("experts_backward", &experts_backward);
}
