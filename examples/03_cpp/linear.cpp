// SPDX-License-Identifier: Apache-2.0
//
// The loop of 01_linear in C++: handles that release themselves, statuses that
// become exceptions.  All of it rests on the C interface; there is no other.
//
//     build/release/bin/cadre run -n 2 -- build/release/bin/linear_cpp
//
// It ends in the hash of 01_linear, at any number of ranks.

#include <cadre/cadre.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace
{

constexpr int inputs = 8;
constexpr int leaves = 4;
constexpr int leaf_samples = 16;
constexpr std::int64_t steps = 300;

// Turns a status that is no success into an exception with its sentence.
void check(cadre_status status)
{
    if (status != CADRE_OK) {
        throw std::runtime_error(cadre_error_text());
    }
}

struct release {
    void operator()(cadre_group *g) const
    {
        cadre_finalize(g);
    }
    void operator()(cadre_model *m) const
    {
        cadre_model_destroy(m);
    }
    void operator()(cadre_engine *e) const
    {
        cadre_engine_destroy(e);
    }
};

template <typename T> using handle = std::unique_ptr<T, release>;

// Calls make(..., &out) and wraps what comes out.
template <typename T, typename Make, typename... Args>
handle<T> make(Make create, Args... args)
{
    T *out = nullptr;
    check(create(args..., &out));
    return handle<T>(out);
}

using input = std::array<float, inputs>;

// Sample i of an endless data set, made by a formula.
float sample(std::int64_t i, input &x)
{
    float y = 0.0F;
    for (std::int64_t j = 0; j < inputs; j++) {
        float &value = x[static_cast<std::size_t>(j)];
        value =
            static_cast<float>((i * (2 * j + 3) + j * j) % 101) / 50.0F - 1.0F;
        y += (0.25F * static_cast<float>(j) - 1.0F) * value;
    }
    return y;
}

// Adds the gradient of a leaf's samples to gw, and returns their loss.
double forward_backward(std::int64_t first, const float *w, float *gw)
{
    double loss = 0.0;
    for (std::int64_t i = first; i < first + leaf_samples; i++) {
        input x;
        float error = -sample(i, x);
        for (std::size_t j = 0; j < inputs; j++) {
            error += w[j] * x[j];
        }
        for (std::size_t j = 0; j < inputs; j++) {
            gw[j] += error * x[j];
        }
        loss += 0.5 * static_cast<double>(error) * static_cast<double>(error);
    }
    return loss;
}

void train()
{
    const auto group = make<cadre_group>(cadre_init, nullptr);
    const auto model = make<cadre_model>(cadre_model_create, group.get());
    const std::array<std::int64_t, 1> shape{inputs};
    int iw = 0;
    check(cadre_model_add(model.get(), "w", shape.data(), 1, nullptr, &iw));
    check(cadre_model_seal(model.get()));
    const float *w = cadre_model_param(model.get(), iw);

    cadre_engine_options options{};
    options.leaves = leaves;
    options.optimizer = CADRE_SGD;
    options.lr = 0.1;
    const auto engine =
        make<cadre_engine>(cadre_engine_create, model.get(), &options);

    cadre_step_report report{};
    for (std::int64_t step = 0; step < steps; step++) {
        check(cadre_step_begin(engine.get()));
        for (int leaf = 0; cadre_leaf_next(engine.get(), &leaf);) {
            const std::int64_t first = (step * leaves + leaf) * leaf_samples;
            float *gw = cadre_leaf_grad(engine.get(), leaf, iw);
            const double loss = forward_backward(first, w, gw);
            check(cadre_grad_ready(engine.get(), leaf, iw));
            check(cadre_leaf_end(engine.get(), leaf, loss, leaf_samples));
        }
        check(cadre_step_end(engine.get(), &report));
    }
    if (cadre_rank(group.get()) == 0) {
        std::printf("loss %.3g, parameters %016" PRIx64 "\n", report.loss,
            cadre_model_hash(model.get()));
    }
}

} // namespace

int main()
{
    try {
        train();
    } catch (const std::exception &e) {
        std::fprintf(stderr, "linear_cpp: %s\n", e.what());
        return 1;
    }
    return 0;
}
