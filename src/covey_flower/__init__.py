"""covey on Flower: the same runs, with remote clients.

Needs the extra `flower`. A complete federation needs no code: `covey deploy init`
writes it. Who has a Flower app keeps its training function and adds

    app = ClientApp(mods=[covey_mod(Net, load_data)])           # client_app.py

    @app.main()                                                 # server_app.py
    def main(grid, context):
        Federated("covey.toml", Net).start(grid, out="runs/mine", nodes=6)
"""
