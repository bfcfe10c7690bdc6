# pyright: reportUnusedExpression=false
# %% [markdown]
# # A federation in a notebook
#
# The cells of this file run in Jupyter, VS Code or any editor that knows `# %%`.
# A run is played, watched, and looked at; nothing leaves this machine.

# %%
import covey

settings = {
    "rounds": 10,
    "population.clients": 10,
    "population.audit_examples": 100,
    "population.thresholds": [0.5, 0.56],
    "method.name": "ifca-mir",
    "risk.name": "oracle",
    "risk.every": 2,
    "train.local_epochs": 3,
    "engine.workers": 1,
}

# %% [markdown]
# One line below the cell follows the run. `rows` gets every round, with what only the
# program that plays it is told: the losses of training.

# %%
rows: list[covey.RoundMetrics] = []
run = covey.run(
    config=settings,
    out="runs/notebook",
    exist="overwrite",
    on_round=rows.append,
    stop=covey.EarlyStopping(patience=4),
)
run

# %%
run.rounds_frame().tail(3)

# %%
run.plot.accuracy()

# %%
run.plot.risk()

# %% [markdown]
# Who is in a cluster whose model gives more away than the client accepts?

# %%
clients = run.clients_frame()
clients[clients.risk > clients.threshold]

# %%
[round(row.loss or 0.0, 3) for row in rows]

# %% [markdown]
# The same over several methods: the rows of `sweep.csv`.

# %%
swept = covey.sweep(
    {**settings, "rounds": 2}, over={"method.name": ["fedavg", "ifca-mir"]}, out="sweeps/notebook"
)
swept.frame()[["method.name", "accuracy", "violations"]]
